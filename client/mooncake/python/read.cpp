/* client/mooncake/python/read.cpp - reads of values as bytes, buffers, to addresses, in parts. */
#include "client/mooncake/python/internal.hpp"

namespace mc
{

constexpr int tries_max = 16; /* for a value that is replaced by a larger one during each read */
constexpr size_t small_bytes = 8192;

static void read(store &self, sl_iov_list *items, uint32_t count, sl_store_reading how,
                 int64_t *results, uint64_t *lengths)
{
    in_batches(count, results, [&](uint32_t first, uint32_t some, int64_t *to) {
        sl_store_read(self.at, items + first, some, how, to, lengths + first);
    });
}

static py::ref read_list(store &self, const items &what, uint32_t count, sl_store_reading how)
{
    auto results = std::make_unique_for_overwrite<int64_t[]>(count);
    auto lengths = std::make_unique_for_overwrite<uint64_t[]>(count);
    read(self, what.at.get(), count, how, results.get(), lengths.get());
    return py::list_of(count, [&](size_t i) { return results[i]; });
}

/* ---- as bytes ---- */

/* Returns values as bytes; b"" if the value does not exist or cannot be read. */
static py::ref values_of(store &self, const sl_object_key *names, uint32_t count)
{
    std::vector<py::ref> values(count);
    auto items = std::make_unique<sl_iov_list[]>(count);
    auto pieces = std::make_unique<sl_iov[]>(count);
    auto results = std::make_unique<int64_t[]>(count);
    auto lengths = std::make_unique<uint64_t[]>(count);
    bool grew = true;
    for (int tries = 0; grew && tries < tries_max; tries++) {
        for (uint32_t i = 0; i < count; i++) {
            PyObject *value = values[i].get();
            pieces[i].at = value == nullptr ? nullptr : PyBytes_AsString(value);
            items[i] = {.key = names[i],
                        .bundle = {},
                        .at = &pieces[i],
                        .count = value == nullptr ? 0u : 1u};
        }
        read(self, items.get(), count, SL_STORE_SIZED, results.get(), lengths.get());
        grew = false;
        for (uint32_t i = 0; i < count; i++) {
            if (results[i] == SL_STORE_INVALID && lengths[i] > pieces[i].length_bytes) {
                pieces[i].length_bytes = lengths[i];
                values[i] = py::bytes(nullptr, lengths[i]);
                grew = true;
            }
        }
    }
    return py::list_of(count, [&](size_t i) {
        const uint64_t length = results[i] < 0 ? 0 : static_cast<uint64_t>(results[i]);
        const bool whole = values[i].get() != nullptr && length == pieces[i].length_bytes;
        return whole ? std::move(values[i]) /* else a smaller value replaced it */
                     : py::bytes(length == 0 ? nullptr : pieces[i].at, length);
    });
}

static py::ref get(store &self, const key &name)
{
    char small[small_bytes];
    const sl_iov piece = {small, sizeof small, 0};
    sl_iov_list item = {.key = name, .bundle = {}, .at = &piece, .count = 1};
    int64_t result = SL_STORE_INVALID;
    uint64_t length = 0;
    read(self, &item, 1, SL_STORE_SIZED, &result, &length);
    if (result == SL_STORE_INVALID && length > sizeof small) {
        return py::share(PyList_GetItem(values_of(self, &name, 1).get(), 0));
    }
    return py::bytes(small, result < 0 ? 0 : static_cast<size_t>(result));
}

static py::ref get_batch(store &self, const keys &names)
{
    return names.count == 0 || !set_up(self)
               ? py::list_of(1, [](size_t) { return py::bytes(nullptr, 0); })
               : values_of(self, names.at.get(), names.count);
}

/* ---- as buffers ---- */

/* Buffers of a call; releases those that were not returned. */
struct held {
    std::vector<sl_store_buffer *> at;

    explicit held(uint32_t count) : at(count)
    {
    }
    held(const held &) = delete;
    ~held()
    {
        for (sl_store_buffer *&each : at) {
            sl_store_buffer_release(&each);
        }
    }
};

static py::ref get_buffer(store &self, key &name)
{
    held found(1);
    int code = SL_STORE_OK;
    {
        const py::unlocked now;
        sl_store_hold(self.at, &name, 1, found.at.data(), &code);
    }
    return buffer_or_none(found.at[0]);
}

static py::ref batch_get_buffer(store &self, const keys &names)
{
    held found(names.count);
    auto codes = std::make_unique_for_overwrite<int[]>(names.count);
    in_batches(names.count, codes.get(), [&](uint32_t first, uint32_t count, int *to) {
        sl_store_hold(self.at, names.at.get() + first, count, &found.at[first], to);
    });
    return py::list_of(names.count, [&](size_t i) { return buffer_or_none(found.at[i]); });
}

/* ---- to addresses ---- */

static int64_t get_into(store &self, const key &name, uint64_t addr, uint64_t size)
{
    const sl_iov piece = {address(addr), size, 0};
    sl_iov_list item = {.key = name, .bundle = {}, .at = &piece, .count = 1};
    int64_t result = SL_STORE_INVALID;
    uint64_t length = 0;
    read(self, &item, 1, SL_STORE_WHOLE, &result, &length);
    return result;
}

template <typename T>
static py::ref read_values(store &self, const keys &names, const T &addrs, const T &sizes)
{
    if (addrs.count != names.count || sizes.count != names.count) {
        return same(SL_STORE_INVALID, names.count);
    }
    return read_list(self, items(names, addrs, sizes), names.count, SL_STORE_WHOLE);
}

static py::ref batch_get_into(store &self, const keys &names, const numbers &addrs,
                              const numbers &sizes)
{
    return read_values(self, names, addrs, sizes);
}

static py::ref batch_get_into_multi_buffers(store &self, const keys &names, const lists &addrs,
                                            const lists &sizes, const flag &same_node)
{
    (void)same_node; /* a value is always contiguous */
    return read_values(self, names, addrs, sizes);
}

/* Reads pieces at offsets in the values: [size of the value in bytes, or a code] */
static py::ref read_parts(store &self, const keys &names, const lists &addrs, const lists &sizes,
                          const lists &offsets)
{
    return read_list(self, items(names, addrs, sizes, &offsets), names.count, SL_STORE_PARTS);
}

/* ---- in parts ---- */

static py::ref get_session_start(store &self, const keys &names)
{
    return answers<int>(set_up(self) ? names.count : 0,
                        [&](uint32_t first, uint32_t count, int *to) {
                            sl_store_get_session_start(self.at, names.at.get() + first, count, to);
                        });
}

static int get_session_end(store &self, const keys &names)
{
    int code = set_up(self) ? SL_STORE_OK : SL_STORE_INTERNAL;
    in_batches(names.count, &code, [&](uint32_t first, uint32_t count, int *) {
        const int ended = sl_store_get_session_end(self.at, names.at.get() + first, count);
        code = code == SL_STORE_OK ? ended : code;
    });
    return code;
}

template <auto move>
static py::ref session_move(store &self, const keys &names, const lists &addrs, const lists &sizes,
                            const lists &offsets)
{
    if (!set_up(self)) {
        return same(0, 0);
    }
    if (addrs.count != names.count || sizes.count != names.count || offsets.count != names.count) {
        return same(SL_STORE_INVALID, names.count);
    }
    const items what(names, addrs, sizes, &offsets);
    return answers<int64_t>(names.count, [&](uint32_t first, uint32_t count, int64_t *to) {
        move(self.at, what.at.get() + first, count, to);
        for (uint32_t i = 0; i < count; i++) {
            const uint32_t wanted = addrs.counts[first + i];
            const bool fits =
                sizes.counts[first + i] == wanted && offsets.counts[first + i] == wanted;
            to[i] = fits ? to[i] : int64_t{SL_STORE_INVALID}; /* no pieces were copied */
        }
    });
}

void read_methods(std::vector<PyMethodDef> &out)
{
    out.insert(
        out.end(),
        {MC_METHOD("get", "(key)", get,
                   "Returns the value; b'' if it does not exist or cannot be read."),
         MC_METHOD("get_batch", "(keys)", get_batch, "As get, for each key."),
         MC_METHOD("get_buffer", "(key)", get_buffer,
                   "Returns a BufferHandle of the value in shared memory, or None."),
         MC_METHOD("batch_get_buffer", "(keys)", batch_get_buffer, "As get_buffer, for each key."),
         MC_METHOD("get_into", "(key, buffer_ptr, size)", get_into,
                   "Reads a value to an address; returns its size in bytes, or a code."),
         MC_METHOD("batch_get_into", "(keys, buffer_ptrs, sizes)", batch_get_into,
                   "As get_into, for each key."),
         MC_METHOD(
             "batch_get_into_multi_buffers",
             "(keys, all_buffer_ptrs, all_sizes, prefer_alloc_in_same_node=False)",
             batch_get_into_multi_buffers,
             "Reads each value to several addresses; returns its size, or a code, for each key."),
         MC_METHOD("_read_parts", "(keys, addrs, sizes, offsets)", read_parts, ""),
         MC_METHOD("_registered", "(addr)", plain<sl_store_registered_bytes>::it, ""),
         MC_METHOD("batch_get_session_start", "(keys)", get_session_start,
                   "Looks keys up once, to read their values in parts."),
         MC_METHOD("batch_get_into_multi_buffer_ranges",
                   "(keys, all_buffer_ptrs, all_sizes, all_src_offsets)",
                   session_move<sl_store_get_session_read>,
                   "Returns the bytes read of each key, or a code; -707: the lease ended."),
         MC_METHOD("batch_get_session_end", "(keys)", get_session_end,
                   "Ends the sessions; returns 0 or a code."),
         MC_METHOD("batch_put_from_multi_buffer_ranges",
                   "(keys, all_buffer_ptrs, all_sizes, all_dst_offsets)",
                   session_move<sl_store_put_session_write>,
                   "Returns the bytes written of each key, or a code.")});
}

} // namespace mc
