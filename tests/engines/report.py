"""The results of a run of the engines, as text and as JSON."""

import dataclasses
import json

GIB = 1 << 30


@dataclasses.dataclass
class Result:
    engine: str
    scenario: str
    verdict: str  # ok, FAILED, skipped
    seconds: float
    hits: int = 0
    queried: int = 0
    note: str = ""

    def line(self):
        hits = f"{self.hits}/{self.queried}" if self.queried else ""
        return f"{self.verdict:8} {self.engine:8} {self.scenario:44} {self.seconds:6.1f} s  {hits:>13}  {self.note}".rstrip()


class Report:
    def __init__(self):
        self.results, self.tables, self.environments = [], [], {}

    def add(self, result):
        self.results.append(result)
        print(result.line(), flush=True)

    def count(self, verdict):
        return sum(result.verdict == verdict for result in self.results)

    def print(self, seconds):
        print("\n" + heading("scenarios (hits/queried: tokens, as the engine's own metrics count them)"))
        for result in self.results:
            print(result.line())
        for table in self.tables:
            print("\n" + heading(table.title))
            widths = [max(len(str(row[at])) for row in [table.header, *table.rows]) for at in range(len(table.header))]
            for row in [table.header, *table.rows]:
                print("  ".join(str(cell).ljust(width) for cell, width in zip(row, widths)).rstrip())
        print("\n" + heading("time and disk"))
        for name, environment in self.environments.items():
            made = f"made in {environment.seconds:.0f} s" if environment.seconds else "kept from an earlier run"
            print(f"{name}: {environment.bytes / GIB:.1f} GiB in {environment.directory}, {made}")
        print(f"{seconds:.0f} s in all")
        print(f"{self.count('ok')} passed, {self.count('FAILED')} failed, {self.count('skipped')} skipped")

    def write(self, path, seconds):
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"seconds": round(seconds, 1), "scenarios": [dataclasses.asdict(result) for result in self.results],
                       "tables": [dataclasses.asdict(table) for table in self.tables],
                       "environments": {name: dataclasses.asdict(environment) for name, environment in self.environments.items()}},
                      file, indent=1)
            file.write("\n")

    def exit_code(self):
        if self.count("FAILED"):
            return 1
        return 0 if self.count("ok") else 77


def heading(text):
    return f"== {text}"
