"""The report: one page about what a job did, which stands for itself and opens without a network."""

from __future__ import annotations

from pipelines.report.writing import report_location, write_report

__all__ = ["report_location", "write_report"]
