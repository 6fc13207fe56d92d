"""Nodes and workers that the scenarios of an engine share."""

from harness import GIB, Node, Worker


class SharedThings:
    """Nodes and workers by name: started when a scenario first asks for them."""

    # The engine's worker: its program, its name, variables of its environment, and how long it may take to start.
    script, name, settings, start_seconds = "", "", {}, 180

    def __init__(self, run):
        self.run = run
        self.things = {}

    def shared(self, name, make):
        """Returns what make() gave last time, unless that was stopped since."""
        stops, thing = self.things.get(name, (None, None))
        if thing is None or stops != self.run.stops:
            thing = make()
            self.things[name] = (self.run.stops, thing)
        return thing

    def node(self):
        return self.shared("node", lambda: Node(self.run, disk_bytes=2 * GIB))

    def worker_start(self, node, **told):
        worker = Worker(self.run, self.script, self.name, self.run.variables(**node.client_variables(), **self.settings),
                        {"master": node.address, **told})
        worker.answer(self.start_seconds)
        return worker
