/* client/python/batches.cpp - the type Batches: many objects in the background, on threads of C. */
#include "client/python/internal.hpp"
#include "client/python/jobs.hpp"
#include "runtime/sl_hex.h"

#include <algorithm>
#include <memory>

namespace py
{

constexpr uint64_t timeout_ns_default = 10000000000;
constexpr uint32_t threads_default = 3;
constexpr uint32_t depth_default = 1024;

/* A job with what it needs of Python's, released under the interpreter's lock. */
struct batch final : job {
    std::optional<py::keys> given;
    std::vector<sl_object_key> names; /* the prefix, and the key or, of rows, its digits */
    std::vector<sl_err> room_of_codes;
    std::string text; /* of names that were made */
    std::vector<buffer> views;
    std::vector<sl_piece> places;
};
/* ---- life ---- */

struct batches final : life {
    batches(client &of, std::string_view before, uint64_t wait_ns)
        : life("the batches are closed", "the batches were made before a fork: make others"),
          by(of), prefix(before), timeout_ns(wait_ns)
    {
        begin();
    }
    ~batches()
    {
        end(); /* whoever used it held a reference */
    }
    void end() override;

    kept<client> by;
    std::unique_ptr<jobs> pool;
    std::string prefix;
    uint64_t timeout_ns;
};

void batches::end()
{
    const kept<client> of = std::move(by);
    std::unique_ptr<jobs> gone = std::move(pool);
    if (foreign()) { /* a child has none of the threads */
        (void)gone.release();
    } else if (gone) {
        job_list left; /* ends with the GIL */
        const unlocked now;
        left = gone->stop();
    }
}

static ref batches_new(PyTypeObject &type, PyObject *of, std::optional<uint32_t> threads,
                       std::optional<uint32_t> depth, timeout wait, PyObject *prefix)
{
    if (Py_TYPE(of) != kinds.client) {
        fail(PyExc_TypeError, "client: a sluice.Client is needed");
    }
    if (prefix != nullptr && !PyUnicode_Check(prefix)) {
        fail(PyExc_TypeError, "prefix: a str is needed");
    }
    std::string_view before;
    if (prefix != nullptr && PyUnicode_GetLength(prefix) > 0) {
        const key checked(prefix);
        before = {checked.at, checked.length};
    }
    ref made =
        make<batches>(&type, py::of<client>(of), before, wait == 0 ? timeout_ns_default : wait.ns);
    auto &self = py::of<batches>(made.get());
    self.pool = std::make_unique<jobs>(self.by->at, depth.value_or(depth_default));
    ask([&](sl_error *why) { return self.pool->start(threads.value_or(threads_default), why); });
    return made;
}

/* ---- what a job is about ---- */

/* Makes names of the prefix and what write(to, i) writes, of lengths[i]. */
template <typename F>
static void names_make(const batches &self, batch &to, const std::vector<size_t> &lengths, F write)
{
    size_t sum = 0;
    for (const size_t length : lengths) {
        if (length + self.prefix.size() > 1024) {
            refuse(SL_ERR_INVALID, "a key has 1024 bytes at most, with its prefix");
        }
        sum += length + self.prefix.size();
    }
    to.text.resize(sum);
    to.names = room<sl_object_key>(lengths.size());
    char *at = to.text.data();
    for (size_t i = 0; i < lengths.size(); i++) {
        to.names[i] = {at, static_cast<uint32_t>(self.prefix.size() + lengths[i])};
        at = std::copy(self.prefix.begin(), self.prefix.end(), at);
        write(at, i);
        at += lengths[i];
    }
}

/* Keys as the client takes them; with a prefix, where there is one. */
static void names_take(const batches &self, batch &to, PyObject *sequence)
{
    const py::keys &given = to.given.emplace(sequence);
    std::vector<size_t> lengths;
    to.count = given.count;
    if (self.prefix.empty()) {
        to.names = given.at;
        return;
    }
    for (uint32_t i = 0; i < given.count; i++) {
        lengths.push_back(given.at[i].length);
    }
    names_make(self, to, lengths,
               [&](char *at, size_t i) { std::memcpy(at, given.at[i].at, given.at[i].length); });
}

/* Keys of any bytes. */
static void names_hex(const batches &self, batch &to, PyObject *sequence)
{
    const items given(sequence, batch_max, "keys");
    std::vector<size_t> lengths;
    for (uint32_t i = 0; i < given.count; i++) {
        if (!PyBytes_Check(given[i]) || PyBytes_Size(given[i]) == 0) {
            fail(PyExc_TypeError, "keys of rows are bytes, one or more");
        }
        lengths.push_back(2 * static_cast<size_t>(PyBytes_Size(given[i])));
    }
    to.count = given.count;
    names_make(self, to, lengths, [&](char *at, size_t i) {
        sl_hex_write(at, PyBytes_AsString(given[i]), lengths[i] / 2);
    });
}

static void buffers_take(batch &to, PyObject *sequence, int flags)
{
    to.views = buffers_of(sequence, to.count, flags);
    for (const buffer &view : to.views) {
        to.places.push_back({view.at(), view.size(), 0});
    }
}

/* Rows of one buffer of two dimensions: each key has that of its number. */
static void rows_take(batch &to, PyObject *memory, PyObject *numbers, int flags)
{
    to.views.reserve(1);
    const Py_buffer &view = to.views.emplace_back(memory, flags | PyBUF_C_CONTIGUOUS).view;
    const uint64_t row_count = view.ndim >= 2 ? static_cast<uint64_t>(view.shape[0]) : 0;
    const uint64_t row_bytes = row_count == 0 ? 0 : static_cast<uint64_t>(view.len) / row_count;
    u32s rows;
    rows.take(numbers, batch_max, "rows");
    if (row_bytes == 0 || rows.count != to.count) {
        refuse(SL_ERR_INVALID, "rows: memory of two dimensions and a row for each key are needed");
    }
    for (uint32_t i = 0; i < rows.count; i++) {
        if (rows.at[i] >= row_count) {
            refuse(SL_ERR_INVALID, "rows: the memory has no such row");
        }
        to.places.push_back({static_cast<char *>(view.buf) + rows.at[i] * row_bytes, row_bytes, 0});
    }
}

/* ---- submission ---- */

static uint64_t batch_submit(batches &self, std::unique_ptr<batch> made, task kind, timeout wait)
{
    made->room_of_codes = room<sl_err>(made->count);
    made->kind = kind;
    made->timeout_ns = wait == 0 ? self.timeout_ns : wait.ns;
    made->keys = made->names.data();
    made->codes = made->room_of_codes.data();
    made->pieces = made->places.empty() ? nullptr : made->places.data();
    const use here(self);
    return self.pool->submit(std::move(made));
}

template <task kind, int flags>
static uint64_t copies_submit(batches &self, PyObject *sequence, PyObject *buffers, timeout wait)
{
    auto made = std::make_unique<batch>();
    names_take(self, *made, sequence);
    buffers_take(*made, buffers, flags);
    return batch_submit(self, std::move(made), kind, wait);
}

template <task kind, int flags>
static uint64_t rows_submit(batches &self, PyObject *sequence, PyObject *memory, PyObject *rows,
                            timeout wait)
{
    auto made = std::make_unique<batch>();
    names_hex(self, *made, sequence);
    rows_take(*made, memory, rows, flags);
    return batch_submit(self, std::move(made), kind, wait);
}

template <task kind> static uint64_t names_submit(batches &self, PyObject *sequence, timeout wait)
{
    auto made = std::make_unique<batch>();
    names_take(self, *made, sequence);
    return batch_submit(self, std::move(made), kind, wait);
}

/* ---- results ---- */

static ref fine_list(const sl_err *codes, uint32_t count)
{
    return list_of(count, [&](size_t i) { return codes[i] == SL_OK; });
}

/* (id, ok, error, [bool]). To find nothing is an answer, but of a put. */
static ref result_of(const job &of)
{
    const sl_err *begin = of.codes, *end = begin + of.count;
    const sl_err *found = std::find_if(begin, end, [&](sl_err code) {
        return code != SL_OK && (code != SL_ERR_NOT_FOUND || of.kind == task::put);
    });
    const sl_err failure = found == end ? SL_OK : *found;
    const bool worded = of.why.code == failure && of.why.text[0] != '\0';
    const char *words = failure == SL_OK ? "" : worded ? of.why.text : sl_err_text(failure);
    return tuple(of.id, failure == SL_OK, words, fine_list(of.codes, of.count));
}

static ref batches_drain(batches &self)
{
    const use here(self);
    const job_list ended = self.pool->drain();
    ref list = own(PyList_New(0));
    for (const std::unique_ptr<job> &each : ended) {
        check(PyList_Append(list.get(), result_of(*each).get()) == 0);
    }
    return list;
}

static bool batches_wait(batches &self, timeout wait)
{
    const use here(self);
    const unlocked now;
    return self.pool->wait(wait == 0 ? self.timeout_ns : wait.ns);
}

/* Here and now: a look does not go through the threads. */
static ref batches_look(batches &self, PyObject *sequence, timeout wait)
{
    batch given;
    names_take(self, given, sequence);
    std::vector<sl_err> codes = room<sl_err>(given.count);
    self.ask([&](sl_error *why) {
        look_at(self.by->at, given.names.data(), given.count, codes.data(), wait, why);
        return SL_OK;
    });
    return fine_list(codes.data(), given.count);
}

static int batches_event_fd(batches &self)
{
    const use here(self);
    return self.pool->event_fd();
}

static uint32_t batches_pending(batches &self)
{
    const use here(self);
    return self.pool->pending();
}

static bool batches_has_peers(batches &self)
{
    const use here(self);
    return sl_client_has_peers(self.by->at);
}

/* ---- the type ---- */

void batches_add(PyObject *module)
{
    static PyMethodDef functions[] = {
        METHOD("put", "(keys, buffers, *, timeout=None)", (copies_submit<task::put, PyBUF_SIMPLE>),
               "Stores each buffer; a key that exists is success. The number of the job. The "
               "buffers are used until the job was drained."),
        METHOD("get", "(keys, buffers, *, timeout=None)",
               (copies_submit<task::get, PyBUF_WRITABLE>),
               "Reads each value into its buffer. A value of another size is a failure, and the "
               "buffer then holds anything."),
        METHOD("put_rows", "(keys, memory, rows, *, timeout=None)", (rows_submit<task::put, 0>),
               "As put, of rows of memory with two dimensions. Keys are any bytes; their "
               "hexadecimal digits are stored."),
        METHOD("get_rows", "(keys, memory, rows, *, timeout=None)",
               (rows_submit<task::get, PyBUF_WRITABLE>), "As get, into rows of memory."),
        METHOD("exists", "(keys, *, timeout=None)", names_submit<task::look>,
               "Whether this node or a peer has each."),
        METHOD("remove", "(keys, *, timeout=None)", names_submit<task::remove>,
               "Removes each from this node."),
        METHOD("look", "(keys, *, timeout=None)", batches_look,
               "As exists, at once: a list of bools. Without peers it waits for nobody. What is "
               "not known is False."),
        METHOD("drain", "()", batches_drain,
               "(number, ok, error, [bool for each key]) of each job that has ended. ok: "
               "nothing failed; to find nothing is no failure."),
        METHOD("wait", "(timeout=None)", batches_wait,
               "Waits until no job waits or runs. False: not within the timeout (None: that of "
               "jobs)."),
        METHOD("event_fd", "()", batches_event_fd,
               "An eventfd, readable while jobs have ended that were not drained."),
        METHOD("close", "()", close_it<batches>,
               "Jobs that wait are cancelled, those that run end first. Nothing is drained any "
               "more."),
        WITH(enter_it<batches>, leave_it<batches>),
        last_method,
    };
    static PyGetSetDef attributes[] = {
        attribute<is_closed<batches>>("closed", "Whether close() was called."),
        attribute<batches_pending>("pending", "Jobs that wait or run."),
        attribute<batches_has_peers>("has_peers", "Whether there may be other nodes."),
        last_attribute,
    };
    static const char doc[] =
        "Batches(client, *, threads=3, depth=1024, timeout=10, prefix='')\n--\n\nMany objects in "
        "one job, in the background: submitting never waits, and each job ends by its timeout. "
        "With more than depth jobs at work a further one ends at once as failed. prefix goes "
        "before each key.";
    kinds.batches = add_type<batches>(module, "sluice.Batches", doc, functions, attributes,
                                      {maker<batches_new>(doc)});
}

} // namespace py
