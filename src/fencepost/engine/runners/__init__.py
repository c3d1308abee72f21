"""Ways to execute a claimed run: worker processes, threads, an event loop, any program."""
