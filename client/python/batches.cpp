/* client/python/batches.cpp - the type Batches: jobs of many objects, run by native threads. */
#include "client/python/internal.hpp"
#include "client/python/jobs.hpp"

#include <algorithm>
#include <memory>

namespace py
{

constexpr uint64_t timeout_ns_default = 10000000000;
constexpr uint32_t threads_default = 3;
constexpr uint32_t depth_default = 1024;

/* A job and the Python objects that it uses; destroyed with the interpreter's lock held. */
struct batch final : job {
    explicit batch(PyObject *sequence) : given(sequence)
    {
        count = given.count;
        keys = given.at.data();
        codes = given.codes.data();
    }
    py::keys given;
    std::vector<buffer> views;
    std::vector<sl_iov> places;
};

/* ---- life ---- */

struct batches final : life {
    batches(client &of, uint64_t wait_ns)
        : life("the batches are closed", "the batches were made before a fork: make others"),
          by(of), timeout_ns(wait_ns)
    {
        begin();
    }
    ~batches()
    {
        end(); /* every user held a reference */
    }
    void end() override;

    kept<client> by;
    std::unique_ptr<jobs> pool;
    uint64_t timeout_ns;
};

void batches::end()
{
    const kept<client> of = std::move(by);
    std::unique_ptr<jobs> gone = std::move(pool);
    if (foreign()) { /* a forked child has none of the threads */
        (void)gone.release();
    } else if (gone) {
        job_list left; /* destroyed with the GIL held */
        const unlocked now;
        left = gone->stop();
    }
}

static ref batches_new(PyTypeObject &type, PyObject *of, std::optional<uint32_t> threads,
                       std::optional<uint32_t> depth, timeout wait)
{
    if (Py_TYPE(of) != kinds.client) {
        fail(PyExc_TypeError, "client: a sluice.Client is needed");
    }
    ref made = make<batches>(&type, py::of<client>(of), wait == 0 ? timeout_ns_default : wait.ns);
    auto &self = py::of<batches>(made.get());
    self.pool = std::make_unique<jobs>(self.by->at, depth.value_or(depth_default));
    ask([&](sl_error *why) { return self.pool->start(threads.value_or(threads_default), why); });
    return made;
}

/* ---- submission ---- */

static uint64_t batch_submit(batches &self, std::unique_ptr<batch> made, task kind, timeout wait)
{
    made->kind = kind;
    made->timeout_ns = wait == 0 ? self.timeout_ns : wait.ns;
    made->pieces = made->places.empty() ? nullptr : made->places.data();
    const use here(self);
    return self.pool->submit(std::move(made));
}

template <task kind, int flags>
static uint64_t copies_submit(batches &self, PyObject *sequence, PyObject *buffers, timeout wait)
{
    auto made = std::make_unique<batch>(sequence);
    made->views = buffers_of(buffers, made->count, flags);
    for (const buffer &view : made->views) {
        made->places.push_back({view.at(), view.size(), 0});
    }
    return batch_submit(self, std::move(made), kind, wait);
}

template <task kind> static uint64_t names_submit(batches &self, PyObject *sequence, timeout wait)
{
    return batch_submit(self, std::make_unique<batch>(sequence), kind, wait);
}

/* ---- results ---- */

static ref fine_list(const sl_err *codes, uint32_t count)
{
    return list_of(count, [&](size_t i) { return codes[i] == SL_OK; });
}

/* (id, ok, error, [bool]). NOT_FOUND is no failure, except for a put. */
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

/* Runs in the caller's thread, not in the pool. */
static ref batches_look(batches &self, keys &names, timeout wait)
{
    self.ask([&](sl_error *why) {
        look_at(self.by->at, names.at.data(), names.count, names.codes.data(), wait, why);
        return SL_OK;
    });
    return fine_list(names.codes.data(), names.count);
}

template <auto ask> static auto of_pool(batches &self)
{
    const use here(self);
    return (*self.pool.*ask)();
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
               ""),
        METHOD("get", "(keys, buffers, *, timeout=None)",
               (copies_submit<task::get, PyBUF_WRITABLE>), ""),
        METHOD("exists", "(keys, *, timeout=None)", names_submit<task::look>, ""),
        METHOD("remove", "(keys, *, timeout=None)", names_submit<task::remove>, ""),
        METHOD("look", "(keys, *, timeout=None)", batches_look, ""),
        METHOD("drain", "()", batches_drain,
               "Returns (number, ok, error, [bool for each key]) of each job that has ended. "
               "ok: no key failed; a key that was not found is no failure."),
        METHOD("wait", "(timeout=None)", batches_wait,
               "Waits until no job is queued or running. Returns False after the timeout "
               "(None: that of the jobs)."),
        METHOD("event_fd", "()", of_pool<&jobs::event_fd>,
               "Returns an eventfd that is readable while ended jobs have not been drained."),
        METHOD("close", "()", close_it<batches>,
               "Cancels queued jobs and waits for running ones. No job can be drained afterwards."),
        WITH(enter_it<batches>, leave_it<batches>),
        last_method,
    };
    static PyGetSetDef attributes[] = {
        attribute<is_closed<batches>>("closed", "Whether close() was called."),
        attribute<of_pool<&jobs::pending>>("pending", "Number of queued and running jobs."),
        attribute<batches_has_peers>("has_peers", "Whether this node may have peers."),
        last_attribute,
    };
    /* sluice/_batches.py derives from this type and documents the methods that it overrides. */
    static const char doc[] = "Batches(client, *, threads=3, depth=1024, timeout=10)\n--\n\n";
    (void)add_type<batches>(module, "sluice.Batches", doc, functions, attributes,
                            {maker<batches_new>(doc)}, Py_TPFLAGS_BASETYPE);
}

} // namespace py
