"""A small randomly initialised hybrid transformer whose whole cache is in registered pools, and an engine that serves it.

Every layer has attention (with a paged KV cache) and a recurrent state, both split by heads over two ranks. Tokens are
computed one after the other, so that a token takes the same operations on the same numbers whether the tokens before it
were computed here or loaded: logits are bit-identical, not only close."""

import numpy as np

from python_support import sluice

VOCABULARY, WIDTH, LAYERS, WORLD = 509, 64, 4, 2
HEADS, HEAD = 2, 16  # heads of each rank
STATE = HEADS * HEAD
BLOCK_TOKENS, BLOCKS = 8, 48
MODEL = {"name": "tiny-hybrid", "revision": "1", "dtype": "float32", "layout": "layer-token-head"}
PIECE = BLOCK_TOKENS * HEADS * HEAD * 4
KV_STRIDE = PIECE + 24  # neither adjacent nor a multiple of 16, as a device's layout may be
STATE_STRIDE = STATE * 4


def layers_of(count, stride, piece):
    return [sluice.Layer(i * BLOCKS * stride, BLOCKS * stride, stride, piece) for i in range(count)]


POOLS = [sluice.Pool("attention", sluice.POOL_ATTENTION, layers_of(2 * LAYERS, KV_STRIDE, PIECE)),
         sluice.Pool("state", sluice.POOL_MAMBA_STATE, layers_of(LAYERS, STATE_STRIDE, STATE_STRIDE))]
MEMORY_BYTES = [2 * LAYERS * BLOCKS * KV_STRIDE, LAYERS * BLOCKS * STATE_STRIDE]


class Weights:
    def __init__(self, seed=21):
        random = np.random.default_rng(seed)

        def matrix(rows, columns):
            return (random.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32)

        inner = HEADS * HEAD
        self.embedding = random.standard_normal((VOCABULARY, WIDTH)).astype(np.float32)
        self.place = random.standard_normal((BLOCKS * BLOCK_TOKENS, WIDTH)).astype(np.float32)  # without it, output soon repeats
        self.output = matrix(WIDTH, VOCABULARY)
        # [layer][rank]
        self.query, self.key, self.value, self.drive = (
            [[matrix(WIDTH, inner) for _ in range(WORLD)] for _ in range(LAYERS)] for _ in range(4))
        self.mix = [[2 * matrix(2 * inner, WIDTH) for _ in range(WORLD)] for _ in range(LAYERS)]
        self.up = [matrix(WIDTH, 2 * WIDTH) for _ in range(LAYERS)]
        self.down = [matrix(2 * WIDTH, WIDTH) for _ in range(LAYERS)]
        self.decay = random.uniform(0.4, 0.9, STATE).astype(np.float32)
        angles = np.outer(np.arange(BLOCKS * BLOCK_TOKENS), 1.0 / 50.0 ** (np.arange(HEAD // 2) / (HEAD // 2)))
        self.cosine, self.sine = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def normed(row):
    return row / np.sqrt(np.mean(row * row) + np.float32(1e-5))


class Cache:
    """Device blocks as arrays over the memory of the pools, without a copy."""

    def __init__(self, memories):  # [rank][pool]
        self.memories = memories
        self.key, self.value, self.state = [], [], []  # [rank][layer] -> [block][...]
        for attention, state in memories:
            kv = np.frombuffer(attention, np.uint8).reshape(2 * LAYERS, BLOCKS, KV_STRIDE)
            rows = [np.lib.stride_tricks.as_strided(layer[:, :PIECE].view(np.float32), (BLOCKS, BLOCK_TOKENS, HEADS, HEAD),
                                                    (KV_STRIDE, HEADS * HEAD * 4, HEAD * 4, 4)) for layer in kv]
            self.key.append(rows[0::2])
            self.value.append(rows[1::2])
            self.state.append(np.frombuffer(state, np.float32).reshape(LAYERS, BLOCKS, STATE))

    def poison(self, blocks):
        """Sets the bytes to NaN, as left by an earlier user or never written."""
        for rank in range(WORLD):
            for layer in range(LAYERS):
                for rows in (self.key[rank][layer], self.value[rank][layer], self.state[rank][layer]):
                    rows[blocks] = np.nan

    def pieces(self, block):
        """Every piece of a block by its name, as writable bytes."""
        for rank in range(WORLD):
            for layer in range(LAYERS):
                for what, rows in (("key", self.key), ("value", self.value), ("state", self.state)):
                    yield f"rank {rank} layer {layer} {what}", rows[rank][layer][block].reshape(-1).view(np.uint8)


class Model:
    def __init__(self, weights, cache):
        self.weights, self.cache = weights, cache

    def rotated(self, rows, position):
        cosine, sine = self.weights.cosine[position], self.weights.sine[position]
        even, odd = rows[:, 0::2], rows[:, 1::2]
        return np.concatenate([even * cosine - odd * sine, even * sine + odd * cosine], axis=1)

    def attend(self, layer, rank, row, position, blocks):
        weights, cache = self.weights, self.cache
        block, place = blocks[position // BLOCK_TOKENS], position % BLOCK_TOKENS
        cache.key[rank][layer][block, place] = self.rotated((row @ weights.key[layer][rank]).reshape(HEADS, HEAD), position)
        cache.value[rank][layer][block, place] = (row @ weights.value[layer][rank]).reshape(HEADS, HEAD)
        query = self.rotated((row @ weights.query[layer][rank]).reshape(HEADS, HEAD), position)
        seen = blocks[:position // BLOCK_TOKENS + 1]
        keys = cache.key[rank][layer][seen].reshape(-1, HEADS, HEAD)[:position + 1]
        values = cache.value[rank][layer][seen].reshape(-1, HEADS, HEAD)[:position + 1]
        scores = np.einsum("hd,thd->ht", query, keys) / np.float32(np.sqrt(HEAD))
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.einsum("ht,thd->hd", scores / scores.sum(axis=1, keepdims=True), values).reshape(-1)

    def recur(self, layer, rank, row, position, blocks):
        """The state after this token is in this token's block: that of a whole block is the state at its end."""
        rows = self.cache.state[rank][layer]
        before = rows[blocks[(position - 1) // BLOCK_TOKENS]] if position > 0 else np.zeros(STATE, np.float32)
        decay = self.weights.decay
        after = decay * before + (1 - decay) * np.tanh(row @ self.weights.drive[layer][rank])
        rows[blocks[position // BLOCK_TOKENS]] = after
        return after

    def step(self, token, position, blocks, layer_is_there):
        """Logits after one token, whose cache entries are written."""
        weights = self.weights
        hidden = weights.embedding[token] + weights.place[position]
        for layer in range(LAYERS):
            layer_is_there(layer)
            row = normed(hidden)
            mixed = [np.concatenate([self.attend(layer, rank, row, position, blocks),
                                     self.recur(layer, rank, row, position, blocks)]) @ weights.mix[layer][rank]
                     for rank in range(WORLD)]
            hidden = hidden + mixed[0] + mixed[1]  # the sum that ranks would reduce
            hidden = hidden + np.maximum(normed(hidden) @ weights.up[layer], 0) @ weights.down[layer]
        return normed(hidden) @ weights.output


class Run:
    """The results of one generation."""

    def __init__(self):
        self.tokens, self.logits = [], []
        self.loaded = self.computed = 0  # tokens of the prompt
        self.from_disk = 0  # blocks


class Engine:
    """Serves one request at a time. Without a client nothing is cached."""

    def __init__(self, weights, client=None, name="tiny"):
        self.engine = None
        memories = [[bytearray(size) for size in MEMORY_BYTES] for _ in range(WORLD)]
        if client is not None:
            self.engine = client.engine(name, pools=POOLS, block_tokens=BLOCK_TOKENS, block_count=BLOCKS, world=WORLD,
                                        model=MODEL)
            memories = [[self.engine.memory(rank, pool.name) for pool in POOLS] for rank in range(WORLD)]
        self.cache = Cache(memories)
        self.model = Model(weights, self.cache)
        self.free = list(np.random.default_rng(3).permutation(BLOCKS))  # a random order

    def take(self, token_count):
        blocks = np.array([self.free.pop() for _ in range(-(-token_count // BLOCK_TOKENS))], np.uint32)
        self.cache.poison(blocks)
        return blocks

    def give(self, blocks):
        self.free = list(blocks) + self.free

    def load(self, run, prompt, blocks):
        """Starts to load the known part of the prompt, except its last token, which has to be computed; loads are waited
        for layer by layer. Returns the op, or None."""
        whole = (len(prompt) - 1) // BLOCK_TOKENS
        if self.engine is None or whole == 0:
            return None
        op = self.engine.load(np.array(prompt[:whole * BLOCK_TOKENS], np.uint32), blocks[:whole], layer_count=LAYERS)
        run.loaded = op.layer_wait(0) * BLOCK_TOKENS
        return op

    def generate(self, prompt, count, damage=None):
        """Generates count tokens, greedily. damage(cache, blocks): called when the prefix is loaded."""
        run, blocks = Run(), self.take(len(prompt) + count)
        loading = self.load(run, prompt, blocks)
        if damage is not None:
            loading.wait()
            damage(self.cache, blocks)
        there = 0

        def layer_is_there(layer):
            nonlocal there
            if loading is not None and layer >= there:
                loading.layer_wait(layer)
                there = layer + 1

        tokens, position = list(prompt), run.loaded
        run.computed = len(prompt) - run.loaded
        self.go_on(run, tokens, position, len(prompt) + count, blocks, layer_is_there)
        if loading is not None:
            result = loading.wait()
            run.from_disk = result.from_disk
            loading.release()
        self.store(tokens[:-1], blocks)  # the last one was never computed
        self.give(blocks)
        return run

    def go_on(self, run, tokens, position, until, blocks, layer_is_there=lambda layer: None):
        """Computes tokens from position on, and then generates."""
        while len(tokens) < until:
            logits = self.model.step(tokens[position], position, blocks, layer_is_there)
            position += 1
            if position == len(tokens):
                run.logits.append(logits)
                run.tokens.append(int(np.argmax(logits)))
                tokens.append(run.tokens[-1])

    def store(self, tokens, blocks):
        whole = len(tokens) // BLOCK_TOKENS
        if self.engine is not None and whole > 0:
            with self.engine.store(np.array(tokens[:whole * BLOCK_TOKENS], np.uint32), blocks[:whole]) as op:
                op.wait()
