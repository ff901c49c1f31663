"""Small real trainers that log with parity.integrations; `tools/integrations_check.py` runs, kills
and resumes them.
"""
