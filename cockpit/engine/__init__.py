"""Links to nodes, the session, spool, collect, journal."""
