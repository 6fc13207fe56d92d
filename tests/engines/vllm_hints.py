"""vLLM with Sluice's own connector, and requests that give hints about their sessions."""

from harness import GIB, check
from turns import Turns
from vllm_parts import Engine, prompts_make

TOLD, SILENT, TURNS, SLOT_S = 4, 1, 5, 5.0
FIRST, MORE = 600, 60  # tokens of a first prompt, and number that each later turn adds
OTHERS, OTHERS_LENGTH = 3, 600  # prompts after each turn
BLOCK_TOKENS = 32  # 128 KiB
# The memory has the size of all sessions at first; a turn with the prompts after it takes four fifths of it.
MEMORY_BYTES = 12 << 20


class Hints:
    def __init__(self, run, native, node_make):
        self.run, self.native, self.node_make = run, native, node_make
        self.sessions = TOLD + SILENT
        self.hits = self.queried = 0

    def engine(self, node=None):
        return Engine(self.run, self.native.model("llama"), node, more={"block_size": BLOCK_TOKENS})

    def conversation(self):
        """[turn][session]: prompt and answer of an engine without a connector. The answer of a turn is part of the next prompt."""
        engine, turns = self.engine(), []
        prompts = prompts_make("sessions", self.sessions, FIRST)
        for turn in range(TURNS):
            answers = engine.generate(prompts)["tokens"]
            turns.append(list(zip(prompts, answers)))
            new = prompts_make(f"sessions, turn {turn}", self.sessions, MORE)
            prompts = [prompt + answer + more for prompt, answer, more in zip(prompts, answers, new)]
        engine.worker.stop()
        return turns

    def take(self, engine, turns, session, turn, pause_s):
        hints = {"session_id": f"chat {session}", "pause": pause_s}
        if turn + 1 == TURNS and session == 0:
            hints["session"] = "ends"
        prompt, want = turns[turn][session]
        answer = engine.generate([prompt], transfer=[{"sluice_hints": hints}])
        check(answer["tokens"] == [want], f"turn {turn} of session {session}: other tokens than without the connector")
        check(answer["hints_refused"] == 0, f"hints are refused: {hints}")
        if turn > 0:
            self.hits, self.queried = self.hits + answer["hits"], self.queried + answer["queried"]

    def others(self, engine, node, number):
        for prompt in prompts_make(f"others {number}", OTHERS, OTHERS_LENGTH):
            engine.generate([prompt])
            engine.reset()  # waits for stores under way
            node.flush()  # evicted values have to be on disk

    def turns(self):
        turns = self.conversation()
        node = self.node_make(self.run, memory_bytes=MEMORY_BYTES, disk_bytes=GIB)
        engine = self.engine(node)
        play = Turns(node, TOLD, SILENT, TURNS, SLOT_S, lambda *turn: self.take(engine, turns, *turn),
                     lambda number: self.others(engine, node, number))
        play.play()
        known = [session for session in range(self.sessions) if node.session(f"chat {session}")]
        check(known == list(range(1, self.sessions)), f"at the end sessions {known} are known")
        refused = engine.generate(prompts_make("refused", 1, FIRST), transfer=[{"sluice_hints": {"sesion": "ends"}}])
        check(refused["hints_refused"] == 1, "hints that are not understood are not counted")
        engine.worker.stop()
        outcome = play.judge(self.hits, self.queried)
        node.stop()
        return outcome
