"""Who may see the page: a request at its address only, on this machine's own name."""

import pytest

pytest.importorskip("bokeh")

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest
from tornado.ioloop import IOLoop
from tornado.websocket import websocket_connect

from torch_gckm.errors import InvalidInputError
from torch_gckm.label.page import keys_of
from torch_gckm.label.server import LabellingServer


@pytest.fixture
def server(start):
    """A server whose session has nothing to fit, so no process is started."""
    session = start()
    session.begin(session.task())
    session.fail("not tried")
    with LabellingServer(session, title="Insects & <others>") as server:
        server.begin()
        yield server


def status(url, **headers):
    """The status of a request, and what came back."""

    async def fetch():
        return await AsyncHTTPClient().fetch(
            HTTPRequest(url, headers=headers, follow_redirects=False), raise_error=False
        )

    response = IOLoop.current().run_sync(fetch)
    return response.code, response.body.decode()


def handshake(url, **headers):
    """The status of a websocket that is refused; 101 if it is not."""

    async def connect():
        connection = await websocket_connect(HTTPRequest(url.replace("http:", "ws:") + "/ws", headers=headers))
        connection.close()

    try:
        IOLoop.current().run_sync(connect)
    except HTTPClientError as error:
        return error.code
    return 101


def test_the_page_is_at_its_address_only(server):
    root, token = server.url.rsplit("/", 1)
    assert root.startswith("http://127.0.0.1:")
    assert len(token) >= 32
    code, page = status(server.url)
    assert code == 200
    assert "Insects &amp; &lt;others&gt;" in page
    for wrong in ("/", "", "/wrong", f"/{token[:-1]}", f"/{token}x", "/autoload.js", "/metadata", "/ws"):
        code, page = status(root + wrong)
        assert code == 404, wrong
        assert token not in page


def test_other_hosts_and_origins_are_refused(server):
    port = server.url.split(":")[2].split("/")[0]
    for host in ("evil.example", f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", f"localhost.example:{port}"):
        assert status(server.url, Host=host)[0] == 404
    assert status(server.url, Host=f"localhost:{port}")[0] == 200
    ours = f"http://127.0.0.1:{port}"
    assert handshake(server.url, Origin="http://evil.example") == 403
    assert handshake(server.url, Origin=f"http://127.0.0.1:{int(port) - 1}") == 403
    assert handshake(server.url, Origin=ours) == 101
    assert handshake(server.url, Origin=ours, Host="evil.example") == 404
    assert handshake(server.url.replace(server.url[-8:], "00000000"), Origin=ours) == 404


def test_a_port_that_is_taken(server, start):
    port = int(server.url.split(":")[2].split("/")[0])
    with pytest.raises(InvalidInputError, match=f"port {port} cannot be used"):
        LabellingServer(start(), port=port)


def test_keys():
    assert keys_of(["ant", "bee"]) == {"1": "ant", "2": "bee"}
    assert keys_of(["0", "3", "1"]) == {"0": "0", "3": "3", "1": "1"}
    assert keys_of([str(number) for number in range(8, 12)]) == {"1": "8", "2": "9", "3": "10", "4": "11"}
    assert list(keys_of([f"c{number}" for number in range(20)])) == list("123456789")
    assert keys_of([]) == {}
