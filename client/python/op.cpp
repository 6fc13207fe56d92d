/* client/python/op.cpp - the type Op: a running store, load or hand-over. */
#include "client/python/internal.hpp"

#include <algorithm>
#include <ctime>

namespace py
{

constexpr uint64_t ns_per_s = 1000000000;
constexpr uint64_t slice_ns = ns_per_s / 10; /* longest delay of a signal during a wait */
constexpr size_t tokens_max = 4194304;
constexpr size_t events_max = 64; /* ranks */
constexpr uint32_t ended_max = 256;

/* ---- results ---- */

static ref result_of(const sl_op_result &from)
{
    return record(kinds.op_result, from.code, from.op_id, from.trace_id, from.block_count,
                  from.stored_count, from.existed_count, from.from_memory, from.from_disk,
                  from.from_remote, from.bytes, from.fenced,
                  from.code == SL_OK ? "" : from.why.text, from.not_awaited_count);
}

/* Returns the result, or raises the op's failure, which carries it. */
static ref result_give(const sl_op_result &from)
{
    ref result = result_of(from);
    if (from.code != SL_OK) {
        refuse(from.code, &from.why, result.get());
    }
    return result;
}

/* ---- starting one ---- */

static PyObject *unless_none(PyObject *given)
{
    return given == Py_None ? nullptr : given;
}

/* Parameters of store, load, send and receive: tokens, device_blocks, and OP_WORDS. */
class request
{
  public:
    static constexpr size_t parameters = 14;
    explicit request(PyObject *const *given);
    request(const request &) = delete;
    void take_before(PyObject *key);
    void take_layer_ends(size_t pool_count);

    sl_op_request it = {};

  private:
    void take_blocks();
    void take_event(PyObject *handle, uint32_t rank);
    void take_events(PyObject *given);

    PyObject *token_list, *block_list, *ends, *hash_list, *table_list;
    std::optional<uint32_t> hash_bytes;
    u32s tokens, blocks, layer_ends;
    hashes keys;
    tables pools;
    std::vector<sl_op_event> events;
    std::string before;
};
#define OP_WORDS                                                                           \
    "first_block=0, partial=False, extras=None, timeout=None, trace_id=0, layer_count=0, " \
    "layer_ends=None, events=None, hashes=None, hash_bytes=None, blocks=None, hints=None"

request::request(PyObject *const *given)
    : token_list(unless_none(given[0])), block_list(unless_none(given[1])),
      ends(unless_none(given[8])), hash_list(unless_none(given[10])),
      table_list(unless_none(given[12])), hash_bytes(taken<std::optional<uint32_t>>(given[11]))
{
    it.first_block = taken<uint32_t>(given[2]);
    it.partial = taken<bool>(given[3]);
    it.extras = text_or_none(given[4]);
    it.timeout_ns = timeout(given[5]);
    it.trace_id = taken<uint64_t>(given[6]);
    it.layer_count = taken<uint32_t>(given[7]);
    it.hints = hints(given[13]);
    take_blocks();
    take_events(given[9]);
}

/* Blocks are given by tokens, or by the engine's own keys. */
void request::take_blocks()
{
    const bool hashed = hash_list != nullptr && table_list != nullptr;
    if (hashed ? token_list != nullptr || block_list != nullptr
               : token_list == nullptr || block_list == nullptr || hash_list != nullptr ||
                     table_list != nullptr || hash_bytes) {
        fail(PyExc_TypeError, "tokens and device_blocks, or hashes and blocks are needed");
    }
    if (!hashed) {
        tokens.take(token_list, tokens_max, "tokens");
        blocks.take(block_list, batch_max, "device blocks");
        it.tokens = tokens.at;
        it.token_count = tokens.count;
        it.device_blocks = blocks.at;
        it.device_block_count = blocks.count;
        return;
    }
    keys.take(hash_list, hash_bytes);
    pools.take(table_list);
    if (keys.count != pools.each[0].count) {
        refuse(SL_ERR_INVALID, "blocks: one for each hash is needed");
    }
    it.hashes = keys.count > 0 ? keys.at : reinterpret_cast<const unsigned char *>("");
    it.hash_bytes = keys.hash_bytes;
    it.pool_blocks = pools.pools ? pools.at : nullptr;
    it.device_blocks = pools.each[0].at;
    it.device_block_count = keys.count;
}

void request::take_event(PyObject *handle, uint32_t rank)
{
    if (events.size() == events_max) {
        fail(PyExc_ValueError, "events: more than %zu", events_max);
    }
    events.push_back({rank, {}});
    plain_take(handle, events.back().handle, sizeof events.back().handle, "event");
}

/* given: the handle of rank 0, or a dict of handles by rank. */
void request::take_events(PyObject *given)
{
    PyObject *rank = nullptr, *handle = nullptr;
    Py_ssize_t at = 0;
    if (given == nullptr || given == Py_None) {
        return;
    }
    if (!PyDict_Check(given)) {
        take_event(given, 0);
    }
    while (PyDict_Check(given) && PyDict_Next(given, &at, &rank, &handle) != 0) {
        take_event(handle, u32(rank));
    }
    it.events = events.data();
    it.event_count = static_cast<uint32_t>(events.size());
}

/* key: of the block before the first one. */
void request::take_before(PyObject *key)
{
    char *at = nullptr;
    Py_ssize_t length = 0;
    if (key == nullptr || key == Py_None) {
        return;
    }
    check(PyBytes_AsStringAndSize(key, &at, &length) == 0);
    if (it.hashes == nullptr || length == 0 || static_cast<uint32_t>(length) != it.hash_bytes) {
        refuse(SL_ERR_INVALID, "before: a key as long as those of hashes");
    }
    before.assign(at, static_cast<size_t>(length));
    it.before_hash = reinterpret_cast<const unsigned char *>(before.data());
}

/* The number of layers follows from the length of layer_ends. */
void request::take_layer_ends(size_t pool_count)
{
    if (ends == nullptr) {
        return;
    }
    layer_ends.take(ends, SL_LAYERS_MAX * pool_count, "layer_ends");
    const auto count = static_cast<uint32_t>(layer_ends.count / pool_count);
    if (layer_ends.count == 0 || layer_ends.count % pool_count != 0 ||
        (it.layer_count != 0 && it.layer_count != count)) {
        refuse(SL_ERR_INVALID, "layer_ends: one number for each layer and pool is needed");
    }
    it.layer_count = count;
    it.layer_ends = layer_ends.at;
}

/* Tokens per second, or a pair with the position of the token that takes twice as long. */
static sl_compute_rate prefill_of(PyObject *prefill)
{
    if (prefill == nullptr || prefill == Py_None) {
        return {};
    }
    if (!PyTuple_Check(prefill)) {
        return {u64(prefill), 0};
    }
    if (PyTuple_Size(prefill) != 2) {
        fail(PyExc_TypeError, "prefill: a number or a pair is needed");
    }
    return {u64(PyTuple_GetItem(prefill, 0)), u64(PyTuple_GetItem(prefill, 1))};
}

/* ---- life ---- */

op::op() : life("the op is released", "the op was started before a fork")
{
}

op::~op()
{
    end();
}

void op::started(kept<engine> of)
{
    by = std::move(of);
    begin();
}

void op::end()
{
    sl_op *gone = std::exchange(at, nullptr);
    if (gone != nullptr && !foreign()) {
        sl_op_release(&gone); /* with the GIL, as ended_ops needs; does not wait */
    }
    by.drop();
}

/* ---- store, load, send, receive ---- */

/* call: as sl_err call(sl_engine *, const sl_op_request *, sl_op **, sl_error *). */
template <typename F> static ref op_start(engine &of, request &wanted, F call)
{
    ref made = make<op>(kinds.op);
    auto &self = py::of<op>(made.get());
    wanted.take_layer_ends(of.pool_names.size());
    kept<engine> by(of);
    sl_error why = {};
    sl_err err = SL_OK;
    self.starting = true;
    wanted.it.context = made.get(); /* borrowed: the op ends with it */
    {
        const unlocked now;
        err = call(of.at, &wanted.it, &self.at, &why);
    }
    self.starting = false;
    if (err != SL_OK) {
        refuse(err, &why);
    }
    self.started(std::move(by));
    return made;
}

static ref store(engine &self, request &wanted, PyObject *before)
{
    wanted.take_before(before);
    return op_start(self, wanted, sl_store_start);
}

static ref load(engine &self, request &wanted, PyObject *prefill)
{
    wanted.it.prefill = prefill_of(prefill);
    return op_start(self, wanted, sl_load_start);
}

static sl_handover_options handover_of(uint64_t id, std::optional<uint32_t> mode)
{
    sl_handover_options options = {};
    options.id = id;
    options.mode = static_cast<sl_handover_mode>(mode.value_or(SL_HANDOVER_BY_ENVIRONMENT));
    return options;
}

static ref send(engine &self, uint64_t id, request &wanted, PyObject *before,
                std::optional<uint32_t> mode, PyObject *given, timeout hold)
{
    sl_handover_options options = handover_of(id, mode);
    sl_ticket ticket = {};
    options.hold_ns = hold;
    wanted.take_before(before);
    if (unless_none(given) != nullptr) {
        plain_take(given, &ticket, sizeof ticket, "ticket");
        options.ticket = &ticket;
    }
    return op_start(self, wanted, [&](auto at, auto request, auto op, auto why) {
        return sl_kv_send_start(at, request, &options, op, why);
    });
}

static ref receive(engine &self, uint64_t id, request &wanted, PyObject *before,
                   std::optional<uint32_t> mode, PyObject *given, text_or_none node)
{
    sl_handover_options options = handover_of(id, mode);
    sl_transfer_params receipt = {};
    options.from = node;
    wanted.take_before(before);
    if (unless_none(given) != nullptr) {
        plain_take(given, &receipt, sizeof receipt, "receipt");
        options.receipt = &receipt;
    }
    return op_start(self, wanted, [&](auto at, auto request, auto op, auto why) {
        return sl_kv_receive_start(at, request, &options, op, why);
    });
}

void op_methods(methods &engine)
{
    add(engine,
        METHOD("store", "(tokens=None, device_blocks=None, *, " OP_WORDS ", before=None)", store,
               "Starts to store the blocks of tokens, which are in device_blocks, and returns "
               "an Op. Blocks count from the start of the prompt.\n\nThe swapper reads the "
               "blocks on a stream of its own. Without events, the work that writes them must "
               "have ended before this call. With events, the blocks of a rank are read after "
               "its event: events is one handle (rank 0) or a dict of handles by rank, as "
               "torch.cuda.Event(interprocess=True).ipc_handle() returns them. Record an event "
               "before this call, and neither destroy it nor record it again until the op has "
               "ended. Do not write the blocks until the op is fenced.\n\nInstead of tokens "
               "and device_blocks, pass hashes and blocks: keys that the engine made, as a "
               "sequence of bytes of one length or as one buffer with hash_bytes, and their "
               "blocks, in one table or a table for each pool.\n\nbefore: with hashes, the key "
               "of the block before the first one, if known. hints: a dict of session "
               "(\"ends\", \"continues\"), session_id, pause, priority (\"low\", \"normal\", "
               "\"high\") and keep: seconds for which these blocks and those before them are "
               "evicted after others, within bounds.\n\nFor a store by layers, pass "
               "layer_count if it divides the number of layers of every pool. Else pass "
               "layer_ends: for each layer of the forward pass and each pool, how many layers "
               "of the pool belong to it or to those before it. A process without a rank "
               "passes it as well."),
        METHOD("load", "(tokens=None, device_blocks=None, *, " OP_WORDS ", prefill=None)", load,
               "Starts to load the longest known prefix into device_blocks and returns an "
               "Op.\n\nWithout events, all work that touches these blocks must have ended "
               "before this call. With events (as in store) the blocks of a rank are written "
               "after its event. Once the op or layer_wait reports blocks as loaded, work that "
               "is submitted afterwards sees them, on every stream. hashes, blocks and hints: "
               "as in store.\n\nprefill: tokens per second that the engine computes, or a "
               "pair: that and the position of the token that takes twice as long as the "
               "first. The load then skips blocks at its end that are faster to compute than "
               "to read from a disk or a peer: not_awaited_count of the result."),
        METHOD("send",
               "(id, tokens=None, device_blocks=None, *, " OP_WORDS
               ", before=None, mode=HANDOVER_BY_ENVIRONMENT, ticket=None, hold=None)",
               send,
               "Prefill: starts a hand-over and returns an Op. Its receipt() travels with the "
               "first token; it is not needed if decode passes node. Direct mode without a "
               "ticket uses a ticket that decode's node has offered by then, else the "
               "hand-over uses storage. hashes and blocks: as in store; blocks that "
               "are already stored are held and not copied. partial: the last block is "
               "incomplete."),
        METHOD("receive",
               "(id, tokens=None, device_blocks=None, *, " OP_WORDS
               ", before=None, mode=HANDOVER_BY_ENVIRONMENT, receipt=None, node=None)",
               receive,
               "Decode: waits for prefill, then loads; returns an Op. node: name of prefill's "
               "node, which is asked, so that no receipt is needed. hashes, blocks and "
               "partial: as in send."));
}

/* ---- ended ops ---- */

/* Waits while another thread is still in op_start with this op. The caller holds a reference. */
static void op_settle(const op &self)
{
    while (self.starting) {
        const unlocked now;
        const timespec shortly = {0, 20000};
        (void)nanosleep(&shortly, nullptr);
    }
}

/* Keeps the GIL from sl_client_ended until all objects are referenced: no op is released. */
static ref ended_ops(client &self)
{
    sl_op *ops[ended_max];
    std::vector<ref> held;
    held.reserve(ended_max);
    const use here(self);
    ref list = own(PyList_New(0));
    const uint32_t count = sl_client_ended(self.at, ops, ended_max);
    for (uint32_t i = 0; i < count; i++) {
        held.push_back(share(static_cast<PyObject *>(sl_op_context(ops[i]))));
    }
    for (const ref &each : held) {
        const auto &ended = of<op>(each.get());
        sl_op_result result;
        op_settle(ended);
        if (!ended.closed() && sl_op_poll(ended.at, &result) == SL_OK) {
            check(PyList_Append(list.get(), tuple(share(each.get()), result_of(result)).get()) ==
                  0);
        }
    }
    return list;
}

void ended_methods(methods &client)
{
    add(client,
        METHOD("ended_ops", "()", ended_ops,
               "Returns a list of (Op, OpResult) of ops that have ended, each once. Never "
               "waits, and does not raise for a failed op: see result.code and result.why. Ops "
               "that were released, or that have no references left, are not in the list."));
}

/* ---- a running op ---- */

static uint64_t now_ns()
{
    timespec now = {};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * ns_per_s + static_cast<uint64_t>(now.tv_nsec);
}

/* Waits in slices, so that Ctrl-C ends the wait. */
static ref op_wait(op &self, timeout wait)
{
    const use here(self);
    const uint64_t began_ns = now_ns();
    sl_op_result result;
    for (;;) {
        const uint64_t gone_ns = now_ns() - began_ns;
        const uint64_t left_ns = wait == 0 ? slice_ns : wait > gone_ns ? wait - gone_ns : 1;
        sl_err err = SL_OK;
        {
            const unlocked now;
            err = sl_op_wait(self.at, std::min(left_ns, slice_ns), &result);
        }
        if (err == SL_OK) {
            return result_give(result);
        }
        if (err != SL_ERR_TIMEOUT || (wait != 0 && now_ns() - began_ns >= wait)) {
            refuse(err, "the op is still running");
        }
        check(PyErr_CheckSignals() == 0);
    }
}

/* Whether the op has ended; *result is then set. The caller has a use of the op. */
static bool op_ended(op &self, sl_op_result *result)
{
    bool ended = true;
    ask([&](sl_error *) {
        const sl_err err = sl_op_poll(self.at, result);
        ended = err == SL_OK;
        return err == SL_ERR_BUSY ? SL_OK : err;
    });
    return ended;
}

static ref op_poll(op &self)
{
    const use here(self);
    sl_op_result result;
    return op_ended(self, &result) ? result_give(result) : none();
}

/* Cancels the op if it still runs, and waits until it is fenced. */
static void op_stop(op &self)
{
    const use here(self);
    sl_op_result result;
    const bool ended = op_ended(self, &result);
    if (!ended) { /* if this fails, the fence ends the op or reports why not */
        sl_error why = {};
        const unlocked now;
        (void)sl_op_cancel(self.at, &why);
    }
    if (!ended || !result.fenced) {
        ask([&](sl_error *why) { return sl_op_wait_fenced(self.at, 0, why); });
    }
}

/* After `with` the device blocks are free. Raises a failure unless the block itself raised. */
static void op_exit(op &self, PyObject *type, PyObject *, PyObject *)
{
    try {
        if (!self.closed()) {
            op_stop(self);
        }
    } catch (const raised &) {
        if (type == Py_None) {
            throw;
        }
        PyErr_Clear();
    }
    self.close();
}

/* ---- queries of an ended op ---- */

template <auto question> static bool block_ask(op &self, uint32_t block)
{
    const use here(self);
    sl_op_result result;
    if (!op_ended(self, &result)) {
        refuse(SL_ERR_BUSY, "the op is still running");
    }
    return question(self.at, block);
}

static ref op_receipt(op &self)
{
    sl_transfer_params receipt;
    std::memset(&receipt, 0, sizeof receipt); /* padding as well */
    self.ask([&](sl_error *why) { return sl_op_transfer_params(self.at, &receipt, why); });
    return bytes(&receipt, sizeof receipt);
}

static ref op_ticket(op &self, timeout wait)
{
    sl_ticket ticket;
    std::memset(&ticket, 0, sizeof ticket);
    self.ask([&](sl_error *why) { return sl_op_ticket(self.at, &ticket, wait, why); });
    return bytes(&ticket, sizeof ticket);
}

static uint64_t op_number(op &self)
{
    const use here(self);
    const unlocked now; /* waits until the request is sent */
    return sl_op_number(self.at);
}

/* ---- the type ---- */

void op_add(PyObject *module, methods functions)
{
    static methods kept_functions;
    kept_functions = std::move(functions);
    add(kept_functions,
        METHOD("wait", "(timeout=None)", op_wait,
               "Waits and returns the OpResult. A failed op raises the error of its code, with "
               ".result; DeadlineError with .result None: the op is still running."),
        METHOD("poll", "()", op_poll, "As wait, but returns None at once while the op is running."),
        METHOD("cancel", "()", (bound<sl_op_cancel, op>::it),
               "Requests an early end: the op fails with CancelledError unless it ended first."),
        METHOD("wait_fenced", "(timeout=None)", (bound<sl_op_wait_fenced, op, timeout>::it),
               "Waits until the op no longer touches the device blocks. DeadlineError: it "
               "still may."),
        METHOD("block_stored", "(block)", block_ask<sl_op_block_stored>,
               "Ended store: whether this op stored the block (0: first_block)."),
        METHOD("block_existed", "(block)", block_ask<sl_op_block_existed>,
               "Ended store: whether the block existed before."),
        METHOD("block_loaded", "(block)", block_ask<sl_op_block_loaded>,
               "Ended load: whether the block is in its device block (0: first_block)."),
        METHOD("receipt", "()", op_receipt,
               "Ended send: returns the bytes that travel to decode with the first token."),
        METHOD("ticket", "(timeout=None)", op_ticket,
               "Direct receive: returns the bytes that prefill passes as ticket. BusyError: "
               "not known yet; UnsupportedError: the hand-over uses storage."),
        METHOD("release", "()", close_it<op>,
               "Releases the op. A running op is cancelled without waiting: call wait_fenced "
               "before its blocks are reused."),
        WITH(enter_it<op>, op_exit), last_method);
    static PyGetSetDef attributes[] = {
        attribute<is_closed<op>>("released", "Whether release() was called."),
        attribute<op_number>(
            "number", "Number of the op, by which other processes of the engine refer to it."),
        last_attribute,
    };
    kinds.op = add_type<op>(module, "sluice.Op",
                            "A running store, load or side of a hand-over; made by an Engine.",
                            kept_functions.data(), attributes, {});
}

} // namespace py
