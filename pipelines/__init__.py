"""Jobs over data sets: read, route, score, write, report; and the command line for them.

`pipelines.score.score` is the job, `pipelines.config.ScoreConfig` what it is told to do.
"""
