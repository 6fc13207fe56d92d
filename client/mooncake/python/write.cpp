/* client/mooncake/python/write.cpp - puts, upserts, and values that are written in parts. */
#include "client/mooncake/python/internal.hpp"

extern "C" {
#include "runtime/base/sl_clock.h"
}

namespace mc
{

constexpr uint32_t refused_lines_max = 60; /* a minute */

/* Prints why a put was refused; the code lacks it. Lines are limited: engines may retry. */
static void refusal_print(const sl_error &why)
{
    static uint64_t began_ns; /* accessed with the GIL held */
    static uint32_t lines;
    const uint64_t now_ns = sl_clock_monotonic_ns();
    if (why.code == SL_OK) {
        return;
    }
    if (now_ns - began_ns > 60 * SL_NS_PER_S) {
        began_ns = now_ns;
        lines = 0;
    }
    if (lines++ < refused_lines_max) {
        PySys_WriteStderr("mooncake.store: a put gives %d: %.240s\n", SL_STORE_INVALID, why.text);
    }
}

static void write(store &self, sl_iov_list *items, uint32_t count, const terms &config,
                  unsigned kind, int *codes)
{
    sl_error why = {};
    sl_store_terms share;
    in_batches(count, codes, [&](uint32_t first, uint32_t some, int *to) {
        sl_store_write(self.at, items + first, some, config.share(first, some, count, share), kind,
                       to, &why);
    });
    refusal_print(why);
}

static py::ref write_list(store &self, const items &what, uint32_t count, const terms &config,
                          unsigned kind)
{
    auto codes = std::make_unique_for_overwrite<int[]>(count);
    write(self, what.at.get(), count, config, kind, codes.get());
    return py::list_of(count, [&](size_t i) { return codes[i]; });
}

/* Without bytes there is no object to store, which is no failure. */
static int write_one(store &self, const sl_object_key &name, const std::vector<sl_iov> &pieces,
                     const terms &config, unsigned kind)
{
    sl_iov_list item = {.key = name,
                        .bundle = {},
                        .at = pieces.data(),
                        .count = static_cast<uint32_t>(pieces.size())};
    int code = SL_STORE_OK;
    if (!pieces.empty() || !set_up(self)) {
        write(self, &item, 1, config, kind, &code);
    }
    return code;
}

/* ---- copying ---- */

template <unsigned kind>
static int put(store &self, const key &name, const view &value, const terms &config)
{
    const sl_iov piece = value.piece();
    sl_iov_list item = {.key = name, .bundle = {}, .at = &piece, .count = 1};
    int code = SL_STORE_INVALID;
    write(self, &item, 1, config, kind | SL_STORE_COPYING, &code);
    return code;
}

template <unsigned kind>
static int put_batch(store &self, const keys &names, const views &values, const terms &config)
{
    if (names.count != values.count || !set_up(self)) {
        return SL_STORE_INVALID;
    }
    auto items = std::make_unique<sl_iov_list[]>(names.count);
    auto pieces = std::make_unique<sl_iov[]>(names.count);
    auto codes = std::make_unique<int[]>(names.count);
    for (uint32_t i = 0; i < names.count; i++) {
        pieces[i] = values.at[i].piece();
        items[i] = {.key = names.at[i], .bundle = {}, .at = &pieces[i], .count = 1};
    }
    write(self, items.get(), names.count, config, kind | SL_STORE_COPYING, codes.get());
    for (uint32_t i = 0; i < names.count; i++) {
        if (codes[i] != SL_STORE_OK) {
            return codes[i];
        }
    }
    return SL_STORE_OK;
}

/* Arguments: key, parts ...; config only by name. */
template <unsigned kind> struct parts {
    static constexpr const char *doc = kind == 0
                                           ? "put_parts(key, *parts, config=...)\n--\n\nStores "
                                             "the concatenated parts."
                                           : "upsert_parts(key, *parts, config=...)\n--\n\nAs "
                                             "put_parts; replaces.";

    static int put(store &self, PyObject *const *args, Py_ssize_t count, PyObject *names)
    {
        const Py_ssize_t named = names == nullptr ? 0 : PyTuple_Size(names);
        if (count < 1 || named > 1 ||
            (named == 1 &&
             PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, 0), "config") != 0)) {
            py::fail(PyExc_TypeError, "key, parts, config");
        }
        const key name(args[0]);
        const terms config(named == 1 ? args[count] : nullptr);
        auto views = std::make_unique<view[]>(static_cast<size_t>(count));
        std::vector<sl_iov> pieces;
        uint64_t total = 0;
        for (Py_ssize_t i = 1; i < count; i++) {
            views[static_cast<size_t>(i)].take_part(args[i]);
            const sl_iov piece = views[static_cast<size_t>(i)].piece(total);
            total += piece.length_bytes;
            if (piece.length_bytes > 0) {
                pieces.push_back(piece);
            }
        }
        return write_one(self, name, pieces, config, kind | SL_STORE_COPYING);
    }
    static PyObject *run(PyObject *self, PyObject *const *args, Py_ssize_t count,
                         PyObject *names) noexcept
    {
        PyObject *result = py::guarded(
            [&] { return py::give(put(py::of<store>(self), args, count, names)).release(); });
        return result != nullptr ? result : mismatch(doc, names);
    }
    static PyMethodDef method(const char *name)
    {
        return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(run)),
                METH_FASTCALL | METH_KEYWORDS, doc};
    }
};

/* ---- from addresses ---- */

template <unsigned kind>
static int put_from(store &self, const key &name, uint64_t addr, uint64_t size, const terms &config)
{
    std::vector<sl_iov> pieces;
    if (size > 0) {
        pieces.push_back({address(addr), size, 0});
    }
    return write_one(self, name, pieces, config, kind);
}

static int put_from_with_metadata(store &self, const key &name, uint64_t addr,
                                  uint64_t metadata_addr, uint64_t size, uint64_t metadata_size,
                                  const terms &config)
{
    std::vector<sl_iov> pieces;
    if (metadata_size > 0) {
        pieces.push_back({address(metadata_addr), metadata_size, 0});
    }
    if (size > 0) {
        pieces.push_back({address(addr), size, metadata_size});
    }
    return write_one(self, name, pieces, config, 0);
}

template <unsigned kind>
static py::ref batch_put_from(store &self, const keys &names, const numbers &addrs,
                              const numbers &sizes, const terms &config)
{
    if (addrs.count != names.count || sizes.count != names.count) {
        return same(SL_STORE_INVALID, names.count);
    }
    return write_list(self, items(names, addrs, sizes), names.count, config, kind);
}

static py::ref batch_put_from_multi_buffers(store &self, const keys &names, const lists &addrs,
                                            const lists &sizes, const terms &config)
{
    if (!set_up(self)) {
        return same(0, 0);
    }
    if (addrs.count != names.count || sizes.count != names.count) {
        return same(SL_STORE_INVALID, names.count);
    }
    return write_list(self, items(names, addrs, sizes), names.count, config, SL_STORE_SAME_NODE);
}

/* ---- in parts ---- */

static py::ref put_session_start(store &self, const keys &names, const numbers &sizes,
                                 const terms &config)
{
    if (!set_up(self)) {
        return same(0, 0);
    }
    if (sizes.count != names.count) {
        return same(SL_STORE_INVALID, names.count);
    }
    sl_error why = {};
    sl_store_terms share;
    py::ref codes = answers<int>(names.count, [&](uint32_t first, uint32_t count, int *to) {
        sl_store_put_session_start(self.at, names.at.get() + first, sizes.at.get() + first, count,
                                   config.share(first, count, names.count, share), to, &why);
    });
    refusal_print(why);
    return codes;
}

template <bool commit> static py::ref put_session_end(store &self, const keys &names)
{
    return answers<int>(
        set_up(self) ? names.count : 0, [&](uint32_t first, uint32_t count, int *to) {
            sl_store_put_session_end(self.at, names.at.get() + first, count, commit, to);
        });
}

void write_methods(std::vector<PyMethodDef> &out)
{
    constexpr unsigned replacing = SL_STORE_REPLACING;
    out.insert(
        out.end(),
        {MC_METHOD("put", "(key, value, config=...)", put<0>,
                   "Stores all bytes of a buffer; returns 0. A key that exists keeps its value."),
         parts<0>::method("put_parts"),
         MC_METHOD("put_batch", "(keys, values, config=...)", put_batch<0>,
                   "Returns 0, or the first other code."),
         MC_METHOD("put_from", "(key, buffer_ptr, size, config=...)", put_from<0>,
                   "Stores the bytes at an address."),
         MC_METHOD("put_from_with_metadata",
                   "(key, buffer_ptr, metadata_buffer_ptr, size, metadata_size, config=...)",
                   put_from_with_metadata, "Stores metadata, then data, as one value."),
         MC_METHOD("batch_put_from", "(keys, buffer_ptrs, sizes, config=...)", batch_put_from<0>,
                   "Returns a code for each key."),
         MC_METHOD("batch_put_from_multi_buffers", "(keys, all_buffer_ptrs, all_sizes, config=...)",
                   batch_put_from_multi_buffers,
                   "Stores for each key the concatenated bytes at its addresses."),
         MC_METHOD("upsert", "(key, value, config=...)", put<replacing>,
                   "As put, but replaces the value of a key that exists."),
         parts<replacing>::method("upsert_parts"),
         MC_METHOD("upsert_batch", "(keys, values, config=...)", put_batch<replacing>,
                   "As put_batch, but replaces values."),
         MC_METHOD("upsert_from", "(key, buffer_ptr, size, config=...)", put_from<replacing>,
                   "As put_from, but replaces the value."),
         MC_METHOD("batch_upsert_from", "(keys, buffer_ptrs, sizes, config=...)",
                   batch_put_from<replacing>, "As batch_put_from, but replaces values."),
         MC_METHOD("batch_put_session_start", "(keys, sizes, config=...)", put_session_start,
                   "Reserves memory for values that are written in parts; -705: the key exists."),
         MC_METHOD("batch_put_session_end", "(keys)", put_session_end<true>, "Commits the values."),
         MC_METHOD("batch_put_session_revoke", "(keys)", put_session_end<false>,
                   "Aborts the writes and frees their memory.")});
}

} // namespace mc
