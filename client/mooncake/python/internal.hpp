/* client/mooncake/python/internal.hpp - what the files of mooncake's native module share: what
 * calls take, held while the interpreter's lock (GIL) is released.
 *
 * Engines hand over thousands of keys with many pieces each: lists and ints of exactly these types
 * are read without making anything for an element. */
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

/* str: its UTF-8; bytes: themselves; borrowed. */
struct key : sl_object_key {
    explicit key(PyObject *given);
};
/* What has a truth of its own: bools, ints, None, numpy's; no texts and no lists. Not given: false.
 */
struct flag {
    bool it;

    explicit flag(PyObject *given);
};
/* A list of str or bytes; holds them, also when another thread changes the caller's list. */
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
/* Lists of numbers, one behind the other. */
struct lists {
    std::unique_ptr<uint64_t[]> at;
    std::unique_ptr<uint32_t[]> counts; /* of each list */
    uint32_t count;
    size_t total = 0;

    explicit lists(PyObject *given);
};
/* Any buffer; what is not contiguous is compacted, in C's order. */
class view
{
  public:
    view() = default;
    explicit view(PyObject *given) : view() /* what fails is released */
    {
        take(given);
    }
    view(const view &) = delete;
    ~view();
    void take(PyObject *given);
    void take_part(PyObject *given); /* one-dimensional, of bytes, or RuntimeError */
    [[nodiscard]] sl_piece piece(uint64_t offset_bytes = 0) const;

  private:
    Py_buffer held = {};
    std::unique_ptr<char[]> copy;
};
struct views {
    std::unique_ptr<view[]> at;
    uint32_t count;

    explicit views(PyObject *given);
};
/* What a ReplicateConfig says when the call begins. Not given: that of a new one. */
class terms
{
  public:
    explicit terms(PyObject *given);
    /* Of `count` of the `total` keys of a call, from `first` on; NULL: those of a new
     * ReplicateConfig. */
    const sl_store_terms *share(uint32_t first, uint32_t count, uint32_t total,
                                sl_store_terms &out) const;

  private:
    py::ref held;
    sl_store_terms it = {};
    std::vector<const char *> segments;
    std::vector<sl_object_key> groups;
};

/* A list that nobody else changes; TypeError where it is none. */
py::ref list_take(PyObject *given);

/* TypeError with the signature and the keywords that were given; an exception of another kind
 * stays. */
PyObject *mismatch(const char *doc, PyObject *names) noexcept;

/* A method whose TypeError says what it accepts. */
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

/* A method that is one call of the store's. */
template <auto call> struct plain;
template <typename R, typename... A, R (*call)(sl_store *, A...)> struct plain<call> {
    static R it(store &self, A... given)
    {
        const py::unlocked now;
        return call(self.at, given...);
    }
};

/* Pieces of keys' addresses and sizes. */
class items
{
  public:
    /* One piece for each key. */
    items(const keys &names, const numbers &addrs, const numbers &sizes);
    /* Empty pieces are left out; without offsets they lie one behind the other. Lists that do not
     * fit leave an item without pieces. */
    items(const keys &names, const lists &addrs, const lists &sizes,
          const lists *offsets = nullptr);

    std::unique_ptr<sl_pieces[]> at;

  private:
    std::unique_ptr<sl_piece[]> pieces;
};

inline void *address(uint64_t number)
{
    return reinterpret_cast<void *>(static_cast<uintptr_t>(number));
}

/* ask(first, count, place of the first's answer), in the store's batches. */
template <typename T, typename F> void in_batches(uint32_t count, T *to, F ask)
{
    const py::unlocked now;
    for (uint32_t first = 0; first < count; first += SL_STORE_BATCH_MAX) {
        ask(first, std::min(count - first, SL_STORE_BATCH_MAX), to + first);
    }
}
/* The list of the answers. */
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

/* Methods of the files write.cpp and read.cpp, up to a NULL name. */
void write_methods(std::vector<PyMethodDef> &out);
void read_methods(std::vector<PyMethodDef> &out);

/* Takes the buffer, which is NULL then; of NULL None. */
py::ref buffer_or_none(sl_store_buffer *&buffer);

} // namespace mc

#endif
