"""How the bundled `mini` checkpoint is made: rows, vocabulary, training, calibration, evaluation. See README.md."""
