/* client/python/internal.hpp - types and functions that the files of the Python module share. */
#ifndef SL_CLIENT_PYTHON_INTERNAL_HPP
#define SL_CLIENT_PYTHON_INTERNAL_HPP

#include "client/python/life.hpp"

#include <list>
#include <vector>

namespace py
{

constexpr size_t batch_max = 65536;
constexpr size_t pools_max = 8; /* of an engine */

/* ---- module.cpp ---- */
/* Types of the module; they live as long as the process. */
struct types {
    PyTypeObject *client, *view, *engine, *memory, *op, *pool;
    PyObject *object_info, *reason, *node_info, *cluster_info, *op_result, *pool_info; /* records */
    PyObject *errors[SL_ERR_COUNT]; /* subclass of SluiceError for each code; [0]: SluiceError */
};
extern types kinds;
struct client final : holder<sl_client, sl_client_close> {
    client() : holder("the client is closed", "the client was opened before a fork: open another")
    {
    }
    ~client()
    {
        end(); /* every user held a reference */
    }
    void end() override
    {
        object_release();
    }
};
/* Returns a copy of the value, of any size. The caller has a use of the client. */
ref value_get(client &self, sl_object_key key, uint64_t timeout_ns);

/* ---- convert.cpp: parameters ---- */
/* A time in seconds; None and 0 are 0 ns, any other at least 1 ns. */
struct seconds {
    uint64_t ns = 0;
    explicit seconds(PyObject *given);
    operator uint64_t() const
    {
        return ns;
    }
};
/* A time in seconds; None is 0 (the call's default), and 0 is 1 ns, the shortest timeout. */
struct timeout : seconds {
    explicit timeout(PyObject *given);
};
/* A key: str, or bytes in UTF-8; borrowed from the object. */
struct key : sl_object_key {
    explicit key(PyObject *given);
};
/* A sequence as a tuple of at most count_max items; `what` is its name in errors. */
class items
{
  public:
    items(PyObject *sequence, size_t count_max, const char *what);
    PyObject *operator[](size_t i) const
    {
        return PyTuple_GetItem(tuple.get(), static_cast<Py_ssize_t>(i));
    }
    uint32_t count = 0;

  private:
    ref tuple;
};
/* A vector of count and one more, so that data() is not NULL. */
template <typename T> std::vector<T> room(size_t count)
{
    return std::vector<T>(count + 1);
}
/* Keys of a batch, borrowed from held, and their codes. */
struct keys {
    items held;
    std::vector<sl_object_key> at;
    std::vector<sl_err> codes;
    uint32_t count;
    explicit keys(PyObject *sequence);
};
ref codes_list(const sl_err *codes, size_t count);

class buffer
{
  public:
    buffer() = default;
    buffer(PyObject *object, int flags)
    {
        check(PyObject_GetBuffer(object, &view, flags) == 0);
    }
    buffer(buffer &&other) noexcept : view(std::exchange(other.view, Py_buffer()))
    {
    }
    ~buffer()
    {
        PyBuffer_Release(&view); /* does nothing if no buffer was taken */
    }
    [[nodiscard]] void *at() const
    {
        return view.buf;
    }
    [[nodiscard]] uint64_t size() const
    {
        return static_cast<uint64_t>(view.len);
    }
    Py_buffer view = {};
};
struct readable : buffer {
    explicit readable(PyObject *object) : buffer(object, PyBUF_SIMPLE)
    {
    }
};
struct writable : buffer {
    explicit writable(PyObject *object) : buffer(object, PyBUF_WRITABLE)
    {
    }
};
/* Buffers of a batch; `count`, the number of keys, is required. */
std::vector<buffer> buffers_of(PyObject *sequence, uint32_t count, int flags);

/* Tokens or blocks: a buffer of unsigned 32-bit items, used in place, or a sequence, copied. */
struct u32s {
    const uint32_t *at = nullptr;
    uint32_t count = 0;
    void take(PyObject *object, size_t count_max, const char *what);

  private:
    bool view(PyObject *object, size_t count_max, const char *what);
    std::optional<buffer> viewed;
    std::vector<uint32_t> copied;
};

/* ---- hashes.cpp: an engine's own keys and its tables of blocks ---- */

/* Keys from a buffer of `each` bytes a key, or from a sequence of bytes of one length. */
struct hashes {
    const unsigned char *at = nullptr; /* hash_bytes each */
    uint32_t hash_bytes = 0, count = 0;
    void take(PyObject *object, std::optional<uint32_t> each);

  private:
    std::optional<buffer> viewed;
    std::vector<unsigned char> copied;
};
/* One table of blocks for all pools, or a sequence with a table for each pool. */
struct tables {
    u32s each[pools_max];
    const uint32_t *at[pools_max] = {}; /* by pool */
    bool pools = false;                 /* a table for each pool; else each[0] is for all */
    void take(PyObject *object);
};

/* ---- hints.cpp ---- */
/* Hints from a dict; NULL, None: none. Texts are borrowed from the dict. */
struct hints : sl_hints {
    explicit hints(PyObject *given);
};

/* ---- view.cpp ---- */
/* Takes the view, and adds a use of the client. The caller has a use of it. */
ref view_new(client &of, sl_view *view);

/* ---- pool.cpp ---- */
struct pool;
/* An engine's use of a pool. */
class pool_use
{
  public:
    explicit pool_use(PyObject *pool);
    pool_use(const pool_use &) = delete;
    ~pool_use();
    [[nodiscard]] const sl_pool *at() const;

  private:
    pool *of;
};

/* ---- engine.cpp ---- */
struct engine final : holder<sl_engine, sl_engine_end> {
    engine() : holder("the engine has ended", "the engine was registered before a fork")
    {
    }
    ~engine()
    {
        end(); /* every user held a reference */
    }
    void end() override
    {
        const kept<client> of = std::move(by);
        const std::list<pool_use> back = std::move(pools); /* released before the client */
        object_release();
    }

    kept<client> by;
    ref name;
    std::vector<ref> pool_names;
    std::vector<uint64_t> memory_bytes; /* of each pool */
    std::list<pool_use> pools;
};

/* ---- op.cpp, layers.cpp ---- */
struct op final : life {
    op();
    ~op();
    void end() override;
    void started(kept<engine> of);

    kept<engine> by; /* until released */
    sl_op *at = nullptr;
    bool starting = false; /* begin() was not called yet, though the op may have ended */
};
/* Copies a receipt or ticket, given as bytes of exactly `count`; `what` is its name in errors. */
void plain_take(PyObject *object, void *out, size_t count, const char *what);

/* ---- functions and methods that each file adds to the module and to its large types ---- */
using methods = std::vector<PyMethodDef>;
void client_add(PyObject *module);
void batches_add(PyObject *module);
void engine_add(PyObject *module);
void op_add(PyObject *module, methods functions); /* in addition to its own */
void pool_add(PyObject *module);
void view_add(PyObject *module);
void batch_methods(methods &client);
void pages_methods(methods &client);
void hint_methods(methods &client);
void look_methods(methods &client);
void pool_methods(methods &client);
void handover_methods(methods &client);
void engine_methods(methods &client);
void op_methods(methods &engine);
void block_methods(methods &engine);
void layer_methods(methods &of_engine, methods &of_op);
void rules_methods(methods &module);
void contribution_methods(methods &of_client);
void ended_methods(methods &client);
template <typename... A> void add(methods &to, A... more)
{
    (to.push_back(more), ...);
}

} // namespace py

#endif
