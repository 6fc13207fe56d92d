"""Rows to measure (an operation, a size, a batch, a set-up of processes) and the exercises that give them. An exercise writes
values and reads them back, so that it gives two rows."""

import dataclasses

KIB, MIB = 1 << 10, 1 << 20
SIZES = (4 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB)
PIECES = 64  # pieces of a value: two tensors of 32 layers each

SECTIONS = {
    "one": "one process, which also has the memory",
    "two": "two processes at a time, each with its own values (rate: of both)",
    "cross": "one process reads what the other wrote, which keeps writing",
    "standalone": "memory in a process of its own, the client brings none",
    "dummy": "the same through setup_dummy",
    "cold": "values only on disk, read by several threads of one process; and plain O_DIRECT reads by the same number",
}
COLD_THREADS = (1, 2, 4, 8)
COLD_BATCH = 64
# kind: (writing one, reading one, writing a batch, reading a batch)
CALLS = {
    "bytes": ("put", "get", "put_batch", "get_batch"),
    "direct": ("put_from", "get_into", "batch_put_from", "batch_get_into"),
    "pieces": ("", "", "batch_put_from_multi_buffers", "batch_get_into_multi_buffers"),
}


def size_text(size):
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


@dataclasses.dataclass(frozen=True)
class Row:
    section: str
    call: str
    batch: int
    size: int  # bytes of one value; 0: existence
    threads: int = 1  # threads of a process

    @property
    def name(self):
        what = f" {size_text(self.size)}" if self.size else ""
        threads = f" by {self.threads} threads" if self.threads > 1 else ""
        return f"{self.section} {self.call}{what}" + (f" x {self.batch}" if self.batch > 1 else "") + threads


@dataclasses.dataclass(frozen=True)
class Exercise:
    section: str
    kind: str  # a key of CALLS, or "exist"
    size: int
    batch: int
    threads: int = 1

    def rows(self):
        """The rows that it gives, by phase."""
        if self.section == "cold":
            get = CALLS[self.kind][2 * (self.batch > 1) + 1]
            return {"get": Row(self.section, get, self.batch, self.size, self.threads)}
        if self.kind == "exist":
            call = "batch_is_exist" if self.batch > 1 else "is_exist"
            return {phase: Row(self.section, f"{call} ({phase})", self.batch, 0) for phase in ("hit", "miss")}
        put, get = CALLS[self.kind][2 * (self.batch > 1):][:2]
        return {"put": Row(self.section, put, self.batch, self.size),
                "get": Row(self.section, get, self.batch, self.size)}

    @property
    def bytes(self):
        """Bytes of one call."""
        return self.size * self.batch


def exercises_all():
    """All exercises, section by section. Where Mooncake has to transfer pieces over TCP, 16 values at a time: with 64 values of 64
    pieces, every key fails in its wheel 0.3.13, after a minute."""
    table = [("one", "bytes", SIZES, (1,)), ("one", "bytes", SIZES[:4], (64,)), ("one", "direct", SIZES, (1, 64, 256)),
             ("one", "pieces", SIZES[1:], (64, 256)), ("one", "exist", (4 * KIB,), (1, 64, 256)),
             ("two", "direct", SIZES, (1, 64)), ("two", "pieces", SIZES[2:4], (64,)), ("two", "exist", (4 * KIB,), (1, 64)),
             ("cross", "direct", SIZES, (1, 64)), ("cross", "pieces", SIZES[2:4], (16,))]
    for section in ("standalone", "dummy"):
        table += [(section, "direct", (4 * KIB, 256 * KIB, 4 * MIB), (1,)), (section, "direct", SIZES[:4], (64,)),
                  (section, "pieces", SIZES[2:4], (16,)), (section, "exist", (4 * KIB,), (1, 64))]
    return table_expand(table) + exercises_cold((64 * KIB, MIB))


def exercises_cold(sizes):
    return [Exercise("cold", "direct", size, batch, threads) for size in sizes
            for batch, threads in [(1, threads) for threads in COLD_THREADS] + [(COLD_BATCH, 1)]]


def exercises_quick():
    table = [("one", "bytes", (4 * KIB, MIB), (1,)), ("one", "direct", SIZES, (1,)),
             ("one", "direct", (4 * KIB, 64 * KIB, MIB), (64,)), ("one", "pieces", (256 * KIB,), (64, 256)),
             ("one", "exist", (4 * KIB,), (1, 256)), ("two", "direct", (64 * KIB,), (1, 64)),
             ("cross", "direct", (64 * KIB,), (1, 64)), ("standalone", "direct", (64 * KIB,), (1, 64)),
             ("dummy", "direct", (64 * KIB,), (1, 64))]
    return table_expand(table) + exercises_cold((MIB,))


def table_expand(table):
    return [Exercise(section, kind, size, batch)
            for section, kind, sizes, batches in table for batch in batches for size in sizes]


def exercises_smoke():
    return [Exercise("one", "bytes", 4 * KIB, 1), Exercise("one", "direct", 64 * KIB, 1), Exercise("one", "direct", 4 * KIB, 64),
            Exercise("one", "pieces", 64 * KIB, 64), Exercise("one", "exist", 4 * KIB, 64), Exercise("two", "direct", 64 * KIB, 64),
            Exercise("cross", "direct", 64 * KIB, 64), Exercise("cold", "direct", MIB, 1, 2)]
