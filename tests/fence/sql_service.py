"""A WSGI service with its marks in SQL, for gunicorn: ``gunicorn 'tests.fence.sql_service:app(URL)'``."""

from sqlalchemy import create_engine, text

from fencepost.fences import WsgiFence, marks_in_sql


def app(url: str) -> WsgiFence:
    engine = create_engine(url)

    def write(environ, start_response):
        fence = environ["fencepost.fence"]
        with engine.begin() as tx:
            tx.execute(text("INSERT INTO settled (token) VALUES (:token)"), {"token": fence.fencing.token})
            fence.check(tx)
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"written"]

    return WsgiFence(write, marks=marks_in_sql(engine))
