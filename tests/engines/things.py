"""What the scenarios of an engine share."""


class Things:
    """Nodes and workers by name: started when a scenario first asks for them."""

    def __init__(self, run):
        self.run = run
        self.things = {}

    def shared(self, name, make):
        """What make() gave last time, unless it was stopped since."""
        stops, thing = self.things.get(name, (None, None))
        if thing is None or stops != self.run.stops:
            thing = make()
            self.things[name] = (self.run.stops, thing)
        return thing
