/* client/mooncake/python/internal.hpp - arguments of calls, which stay valid while the GIL is
 * released, and helpers of mooncake's native module.
 *
 * Engines pass thousands of keys with many pieces each, so lists and ints of exactly these types
 * are read without an object for each element. */
#ifndef SL_CLIENT_MOONCAKE_PYTHON_INTERNAL_HPP
#define SL_CLIENT_MOONCAKE_PYTHON_INTERNAL_HPP

#include "client/python/glue/glue.hpp"

extern "C" {
#include "client/mooncake/store/sl_store.h"
}

#include <memory>
#include <vector>

namespace mc
{

struct store {
    sl_store *at = nullptr;

    store();
    store(const store &) = delete;
    ~store();
};

/* A key: the UTF-8 of a str, or bytes; borrowed. */
struct key : sl_object_key {
    explicit key(PyObject *given);
};
/* A truth value: bool, int, None, numpy's bool; no text or list. Not given: false. */
struct flag {
    bool it;

    explicit flag(PyObject *given);
};
/* A list of str or bytes; holds them even if another thread changes the caller's list. */
struct keys {
    py::ref held;
    uint32_t count;
    std::unique_ptr<sl_object_key[]> at;

    explicit keys(PyObject *given);
};
struct numbers {
    std::unique_ptr<uint64_t[]> at;
    uint32_t count;

    explicit numbers(PyObject *given);
};
/* Lists of numbers, concatenated. */
struct lists {
    std::unique_ptr<uint64_t[]> at;
    std::unique_ptr<uint32_t[]> counts; /* of each list */
    uint32_t count;
    size_t total = 0;

    explicit lists(PyObject *given);
};
/* Any buffer; one that is not contiguous is copied, in C order. */
class view
{
  public:
    view() = default;
    explicit view(PyObject *given) : view() /* so that the destructor runs on failure */
    {
        take(given);
    }
    view(const view &) = delete;
    ~view();
    void take(PyObject *given);
    void take_part(PyObject *given); /* RuntimeError unless one-dimensional, of bytes */
    [[nodiscard]] sl_iov piece(uint64_t offset_bytes = 0) const;

  private:
    Py_buffer held = {};
    std::unique_ptr<char[]> copy;
};
struct views {
    std::unique_ptr<view[]> at;
    uint32_t count;

    explicit views(PyObject *given);
};
/* The fields of a ReplicateConfig at the start of a call. Not given: those of a new one. */
class terms
{
  public:
    explicit terms(PyObject *given);
    /* Terms of keys [first, first + count) of a call; NULL: those of a new config. */
    const sl_store_terms *share(uint32_t first, uint32_t count, uint32_t total,
                                sl_store_terms &out) const;

  private:
    py::ref held;
    sl_store_terms it = {};
    std::vector<const char *> segments;
    std::vector<sl_object_key> groups;
};

/* Returns a private copy of a list; TypeError for other objects. */
py::ref list_take(PyObject *given);

/* Turns an error about arguments into a TypeError with signature and given keywords. */
PyObject *mismatch(const char *doc, PyObject *names) noexcept;

/* A method whose TypeError names its signature. */
template <auto function> struct call {
    static inline const char *doc;

    static PyObject *run(PyObject *self, PyObject *const *args, Py_ssize_t count,
                         PyObject *names) noexcept
    {
        PyObject *result = py::entry<function>::call(self, args, count, names);
        return result != nullptr ? result : mismatch(doc, names);
    }
};
template <auto function> PyMethodDef method(const char *name, const char *doc)
{
    PyMethodDef made = py::method<function>(name, doc);
    made.ml_meth = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call<function>::run));
    call<function>::doc = doc;
    return made;
}
#define MC_METHOD(name, words, function, doc) mc::method<function>(name, name words "\n--\n\n" doc)

/* A method that is one call of the store. */
template <auto call> struct plain;
template <typename R, typename... A, R (*call)(sl_store *, A...)> struct plain<call> {
    static R it(store &self, A... given)
    {
        const py::unlocked now;
        return call(self.at, given...);
    }
};

/* Items of a call, from keys, addresses and sizes. */
class items
{
  public:
    /* One piece for each key. */
    items(const keys &names, const numbers &addrs, const numbers &sizes);
    /* Skips empty pieces. Without offsets, each piece follows the previous one. An item whose lists
     * differ in length gets no pieces. */
    items(const keys &names, const lists &addrs, const lists &sizes,
          const lists *offsets = nullptr);

    std::unique_ptr<sl_iov_list[]> at;

  private:
    std::unique_ptr<sl_iov[]> pieces;
};

inline void *address(uint64_t number)
{
    return reinterpret_cast<void *>(static_cast<uintptr_t>(number));
}

/* Calls ask(first, count, address of the first answer) in batches of the store's size. */
template <typename T, typename F> void in_batches(uint32_t count, T *to, F ask)
{
    const py::unlocked now;
    for (uint32_t first = 0; first < count; first += SL_STORE_BATCH_MAX) {
        ask(first, std::min(count - first, SL_STORE_BATCH_MAX), to + first);
    }
}
/* The same; returns the answers as a list. */
template <typename T, typename F> py::ref answers(uint32_t count, F ask)
{
    auto made = std::make_unique_for_overwrite<T[]>(count);
    in_batches(count, made.get(), ask);
    return py::list_of(count, [&](size_t i) { return made[i]; });
}
inline py::ref same(int code, uint32_t count)
{
    return py::list_of(count, [&](size_t) { return code; });
}
inline bool set_up(const store &self)
{
    return sl_store_is_set_up(self.at);
}

/* Append the methods of write.cpp and read.cpp. */
void write_methods(std::vector<PyMethodDef> &out);
void read_methods(std::vector<PyMethodDef> &out);

/* Takes the buffer and sets it to NULL; returns None for NULL. */
py::ref buffer_or_none(sl_store_buffer *&buffer);

} // namespace mc

#endif
