#!/bin/sh
# For any CI that runs a shell. PARITY_URL is the server, PARITY_TOKEN the token, if the server requires one.
status=0
parity gate "${1:-parity.yaml}" --timeout "${GATE_TIMEOUT:-20000}" --junit gate.xml --json gate.json --markdown gate.md || status=$?
case $status in
  0) echo "go on" ;;
  1) echo "the candidate is worse: stop" ;;
  3) echo "undecided: the report says how many more runs would decide" ;;
  4) echo "no verdict: the server or a worker is in trouble" ;;
  7) echo "no verdict is recorded, and --lookup trains none" ;;
  5) echo "not decided in time; the job goes on, and the next run of this script finds it" ;;
  *) echo "bad input" ;;
esac
exit $status
