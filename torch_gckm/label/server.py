"""A server for the page of a session, for this machine and whoever has its address only.

It listens on the loopback address; the page is at a path that nobody can guess, and at no other. Requests that name
another host are refused, so that a web site whose name leads to this machine does not reach it, and so are websockets
that pages of other origins open.
"""

import logging
import secrets
import socket
import sys
import webbrowser
from functools import partial
from types import TracebackType
from typing import Self

from bokeh.application import Application
from bokeh.application.handlers import FunctionHandler
from bokeh.document import Document
from bokeh.server.server import BaseServer
from bokeh.server.tornado import BokehTornado
from tornado.httpserver import HTTPServer
from tornado.ioloop import IOLoop, PeriodicCallback
from tornado.routing import HostMatches, Rule, RuleRouter

from torch_gckm.errors import InvalidInputError
from torch_gckm.label.background import Background
from torch_gckm.label.page import Page
from torch_gckm.label.session import LabellingSession

ADDRESS = "127.0.0.1"
_STEP = 100  # Milliseconds between two looks at the process that fits.
_KEPT = 6 * 3600  # Seconds that a tab may be asleep.


class LabellingServer:
    """The page of a session on a port of this machine; to be used as a context.

    Args:
        session: What to label.
        port: The port; 0 for one that is free.
        title: What to call the page.

    Attributes:
        url: The address of the page, with its token.
    """

    def __init__(self, session: LabellingSession, *, port: int = 0, title: str = "Labelling") -> None:
        try:
            listening = socket.create_server((ADDRESS, port))
        except (OSError, OverflowError) as error:
            raise InvalidInputError(f"port {port} cannot be used: {error}; leave out --port for a free one") from error
        listening.setblocking(False)
        port = listening.getsockname()[1]
        token = secrets.token_hex(16)
        self.url = f"http://{ADDRESS}:{port}/{token}"
        self._background = Background(session)

        def show(document: Document) -> None:
            Page(document, session, self._background, title)

        # No index and no redirection: they would tell the token.
        pages = BokehTornado(
            {f"/{token}": Application(FunctionHandler(show))}, use_index=False, redirect_root=False,
            extra_websocket_origins=[f"{ADDRESS}:{port}", f"localhost:{port}"],
            unused_session_lifetime_milliseconds=1000 * _KEPT, session_token_expiration=_KEPT,
        )  # fmt: skip
        http = HTTPServer(RuleRouter([Rule(HostMatches(r"(127\.0\.0\.1|localhost)$"), pages)]))
        http.add_sockets([listening])
        self._server = BaseServer(IOLoop.current(), pages, http)
        self._steps = PeriodicCallback(self._background.step, _STEP)

    def begin(self) -> None:
        """Answer requests as soon as the loop of Tornado runs."""
        self._server.start()
        self._steps.start()

    def run(self) -> None:
        """Serve until Ctrl-C."""
        self.begin()
        self._server.io_loop.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._steps.stop()
        self._server.stop(wait=False)
        self._background.stop()


def serve(session: LabellingSession, *, port: int = 0, open_browser: bool = True, title: str = "Labelling") -> None:
    """Show the page of a session until Ctrl-C; prints its address.

    Args:
        session: What to label.
        port: The port on this machine; 0 for one that is free.
        open_browser: Open the page in a browser.
        title: What to call the page.
    """
    logging.getLogger("tornado.access").setLevel(logging.ERROR)  # Requests that are refused are no news.
    with LabellingServer(session, port=port, title=title) as server:
        print(f"Label nodes at {server.url}\nStop with Ctrl-C.", file=sys.stderr, flush=True)
        if open_browser:
            IOLoop.current().add_callback(partial(webbrowser.open, server.url))
        try:
            server.run()
        except KeyboardInterrupt:
            print(file=sys.stderr)
