/* client/python/pool.cpp - the type DevicePool: device memory with one owner. */
#include "client/python/internal.hpp"

#include <algorithm>

namespace py
{

constexpr uint32_t rows_max = 4096;

struct pool final : holder<sl_pool, sl_pool_release> {
    pool() : holder("the pool is released", "the pool was made before a fork")
    {
    }
    ~pool()
    {
        end(); /* every user held a reference */
    }
    void end() override
    {
        const kept<client> of = std::move(by);
        object_release();
    }

    kept<client> by;                     /* until released */
    Py_ssize_t exports = 0, engines = 0; /* number of buffers and of engines that use it */
    bool owner = false, calling = false, revoking = false;
};

pool_use::pool_use(PyObject *object)
{
    if (Py_TYPE(object) != kinds.pool) {
        fail(PyExc_TypeError, "a DevicePool is needed");
    }
    of = &py::of<pool>(object);
    if (of->revoking) {
        refuse(SL_ERR_STALE, "the pool is being revoked");
    }
    of->enter();
    of->engines++;
    Py_INCREF(object);
}

pool_use::~pool_use()
{
    of->engines--;
    of->leave();
    Py_DECREF(object(of));
}

const sl_pool *pool_use::at() const
{
    return of->at;
}

/* ---- create, await, acquire ---- */

/* sl_err call(sl_client *at, const sl_pool_key *key, sl_pool **out, sl_error *why) */
template <typename F>
static ref pool_get(client &of, const char *deployment, uint32_t rank, const char *name, bool owner,
                    F call)
{
    const sl_pool_key key = {deployment, rank, name};
    ref made = make<pool>(kinds.pool);
    auto &self = py::of<pool>(made.get());
    kept<client> by(of);
    sl_pool *got = nullptr;
    ask([&](sl_error *why) { return call(of.at, &key, &got, why); });
    self.owner = owner;
    self.by = std::move(by);
    self.started(got);
    return made;
}

static ref pool_create(client &self, const char *deployment, uint32_t rank, const char *name,
                       uint64_t length_bytes, timeout wait)
{
    return pool_get(self, deployment, rank, name, true, [&](auto at, auto key, auto out, auto why) {
        return sl_pool_create(at, key, length_bytes, wait, out, why);
    });
}

static ref pool_await(client &self, const char *deployment, uint32_t rank, const char *name,
                      timeout wait)
{
    return pool_get(self, deployment, rank, name, false,
                    [&](auto at, auto key, auto out, auto why) {
                        return sl_pool_await(at, key, wait, out, why);
                    });
}

static ref pool_acquire(client &self, const char *deployment, uint32_t rank, const char *name,
                        uint64_t length_bytes, timeout wait)
{
    return pool_get(self, deployment, rank, name, false,
                    [&](auto at, auto key, auto out, auto why) {
                        return sl_pool_acquire(at, key, length_bytes, wait, out, why);
                    });
}

/* ---- calls on a pool ---- */

/* libsluice allows one call at a time: BusyError while another thread's is running. */
template <typename F> static void pool_call(pool &self, F call)
{
    const use here(self);
    if (self.calling) {
        refuse(SL_ERR_BUSY, "");
    }
    self.calling = true;
    sl_error why = {};
    sl_err err = SL_OK;
    {
        const unlocked now;
        err = call(&why);
    }
    self.calling = false;
    if (err != SL_OK) {
        refuse(err, &why);
    }
}

static void pool_publish(pool &self, timeout wait)
{
    pool_call(self, [&](sl_error *why) { return sl_pool_publish(self.at, nullptr, wait, why); });
}

static void pool_wait_over(pool &self, timeout wait)
{
    pool_call(self, [&](sl_error *why) { return sl_pool_wait_over(self.at, wait, why); });
}

static void pool_revoke(pool &self, timeout wait)
{
    /* Memory that Sluice made is unmapped from this process by revoke. */
    if (!self.owner && (self.exports > 0 || self.engines > 0)) {
        fail(PyExc_BufferError, "a memoryview, an array or an engine still uses the pool's memory");
    }
    const bool was_revoking = std::exchange(self.revoking, true);
    try {
        pool_call(self, [&](sl_error *why) { return sl_pool_revoke(self.at, wait, why); });
    } catch (const raised &) {
        self.revoking = was_revoking;
        throw;
    }
    self.revoking = was_revoking;
}

static int pool_getbuffer(PyObject *object, Py_buffer *buffer, int flags)
{
    auto &self = of<pool>(object);
    buffer->obj = nullptr;
    if (self.closed() || self.revoking || self.foreign()) {
        PyErr_SetString(PyExc_BufferError, "the pool is released, or being revoked");
        return -1;
    }
    void *at = sl_pool_at(self.at);
    if (at == nullptr) {
        PyErr_SetString(PyExc_BufferError, "the pool's memory is not mapped here");
        return -1;
    }
    if (PyBuffer_FillInfo(buffer, object, at, static_cast<Py_ssize_t>(sl_pool_length(self.at)), 0,
                          flags) != 0) {
        return -1;
    }
    self.hold();
    self.exports++;
    return 0;
}

static void pool_releasebuffer(PyObject *object, Py_buffer *)
{
    auto &self = of<pool>(object);
    self.exports--;
    self.leave();
}

/* ---- the table ---- */

static ref pools(client &self, timeout wait)
{
    std::vector<sl_pool_info> rows(rows_max);
    uint32_t count = 0;
    self.ask(
        [&](sl_error *why) { return sl_pools(self.at, rows.data(), rows_max, &count, wait, why); });
    return list_of(std::min(count, rows_max), [&](size_t i) {
        const sl_pool_info &row = rows[i];
        return record(kinds.pool_info, row.deployment, row.rank, row.pool, row.state, row.epoch,
                      row.length_bytes, row.by_sluice, row.owner, row.owner_pid, row.mapper_count,
                      row.waiter_count, row.mappers);
    });
}

void pool_methods(methods &client)
{
    add(client,
        METHOD("pool_create", "(deployment, rank, pool, length, *, timeout=None)", pool_create,
               "Creates a rank's pool and returns it as a DevicePool filled with zeros. Others "
               "can map it after publish()."),
        METHOD(
            "pool_await", "(deployment, rank, pool, *, timeout=None)", pool_await,
            "Waits until another process has published the pool and returns it as a DevicePool."),
        METHOD("pool_acquire", "(deployment, rank, pool, length, *, timeout=None)", pool_acquire,
               "As pool_await, for a pool that Sluice makes: it is created if it does not exist."),
        METHOD("pools", "(*, timeout=None)", pools,
               "Returns a PoolInfo for each row of the node's table of pools."));
}

void pool_add(PyObject *module)
{
    static PyMethodDef functions[] = {
        METHOD("publish", "(timeout=None)", pool_publish,
               "Owner only: announces that the pool is ready."),
        METHOD("wait_over", "(timeout=None)", pool_wait_over,
               "Waits until the memory is no longer valid: revoked, its owner died, or the "
               "node forgot it. DeadlineError: it is still valid."),
        METHOD("revoke", "(timeout=None)", pool_revoke,
               "Makes all other processes unmap the pool and returns when they have."),
        METHOD("release", "()", close_it<pool>,
               "Unmaps the pool and reports it to the node: at once, or with the last engine, "
               "memoryview or array over it."),
        WITH(enter_it<pool>, leave_it<pool>),
        last_method,
    };
    static PyGetSetDef attributes[] = {
        attribute<known<sl_pool_length, pool>>("length", "Size in bytes."),
        attribute<known<sl_pool_epoch, pool>>("epoch",
                                              "Number of this memory's life; never reused."),
        attribute<is_closed<pool>>("released", "Whether release() was called."),
        last_attribute,
    };
    kinds.pool =
        add_type<pool>(module, "sluice.DevicePool",
                       "Device memory of one pool of one rank, with one owner; made by "
                       "Client.pool_create, pool_await and pool_acquire. On the host device "
                       "memoryview(pool) is its memory, writable.",
                       functions, attributes,
                       {{Py_bf_getbuffer, reinterpret_cast<void *>(pool_getbuffer)},
                        {Py_bf_releasebuffer, reinterpret_cast<void *>(pool_releasebuffer)}});
}

} // namespace py
