"""A stand-in for a W&B server: it answers the GraphQL queries that W&B's package 0.31 sends to read
one run.

The queries and the shape of the answers are those that the package sent to it and accepted. It was
not compared with a hosted server.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = "a" * 40


class StandIn:
    """A server with one run, team/llm/r1.

    `status` makes it refuse everything, `lost` rows of each page are left out, without `counted` it
    does not say how many rows there are, with `grows` it has one more each time, and `parquet` is
    the export of a finished run.
    """

    def __init__(
        self,
        rows,
        config,
        *,
        state="finished",
        status=200,
        lost=0,
        counted=True,
        grows=False,
        parquet=None,
    ):
        self.rows, self.config, self.state, self.status, self.lost, self.grows = (
            rows,
            config,
            state,
            status,
            lost,
            grows,
        )
        self.counted, self.parquet, self.reads, self.queries = counted, parquet, 0, []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, answer = outer.answer(body) if self.path == "/graphql" else (200, {})
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self):
                data = outer.parquet or b""
                self.send_response(200 if data else 404)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def answer(self, body):
        """Status and answer to a query."""
        request = json.loads(body)
        query, variables = request["query"], request.get("variables") or {}
        self.queries.append(query)
        if self.status != 200:
            return self.status, {
                "errors": [{"message": "rate limit exceeded" if self.status == 429 else "refused"}]
            }
        if "viewer" in query:
            viewer = {
                "id": "v",
                "entity": "team",
                "username": "me",
                "email": "me@example.org",
                "flags": "{}",
                "teams": {"edges": []},
            }
            return 200, {"data": {"viewer": viewer}}
        if (variables.get("name") or variables.get("runName") or variables.get("run")) != "r1":
            return 200, {"data": {"project": {"run": None}}}
        return 200, {"data": {"project": {"run": self._run(query, variables)}}}

    def _run(self, query, variables):
        keys = {
            "lastStep": self.rows[-1]["_step"] if self.rows else -1,
            "sets": [],
            "keys": self._counts() if self.counted else {},
        }
        if "RunHistoryKeys" in query:
            return {"historyKeys": keys}
        if "parquetHistory" in query:
            if self.parquet is not None:
                return {
                    "parquetHistory": {
                        "parquetUrls": [f"{self.url}/history.parquet?signature=x"],
                        "liveData": [],
                    }
                }
            return {
                "parquetHistory": {
                    "parquetUrls": [],
                    "liveData": [{"_step": row["_step"]} for row in self.rows],
                }
            }
        if "HistoryPage" in query:
            here = [
                row
                for row in self.rows
                if variables["minStep"] <= row["_step"] < variables["maxStep"]
            ]
            return {
                "history": [json.dumps(row) for row in (here[: -self.lost] if self.lost else here)]
            }
        assert "RunFragment" in query, query
        self.reads += 1
        return {
            "projectId": "1",
            "id": "x",
            "name": "r1",
            "displayName": "nvfp4-seed1",
            "state": self.state,
            "tags": [],
            "config": json.dumps({key: {"value": value} for key, value in self.config.items()}),
            "historyKeys": keys,
            "historyLineCount": len(self.rows) + (self.reads if self.grows else 0)
            if self.counted
            else None,
            "summaryMetrics": "{}",
            "systemMetrics": "{}",
            "user": {"name": "me", "username": "me"},
        }

    def _counts(self):
        names = sorted({name for row in self.rows for name in row})
        return {
            name: {
                "typeCounts": [{"type": "number", "count": sum(name in row for row in self.rows)}]
            }
            for name in names
        }
