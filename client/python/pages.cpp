/* client/python/pages.cpp - methods of Client for pages of an engine's memory by address.
 *
 * An engine names pages by hashes and by indices of its pool. A page is stored as one value for
 * each suffix; a value is pieces of the pool, at the same offsets in each page. Keys and addresses
 * are computed here, without a Python object for each page. */
#include "client/python/internal.hpp"
#include "client/python/jobs.hpp"

#include <algorithm>
#include <numeric>

namespace py
{

constexpr uint64_t pieces_max = UINT64_C(1) << 20; /* of a call; 24 bytes each */

/* ---- arrays of 64-bit numbers, used in place ---- */

class u64s
{
  public:
    /* object NULL or None: an empty array. */
    u64s(PyObject *object, const char *what)
    {
        if (object == nullptr || object == Py_None) {
            return;
        }
        check(PyObject_GetBuffer(object, &held.view, PyBUF_ND | PyBUF_FORMAT) == 0);
        const std::string_view format = held.view.format == nullptr ? "" : held.view.format;
        const uint64_t length = held.size() / sizeof(uint64_t);
        if (held.view.itemsize != sizeof(uint64_t) || format.empty() ||
            std::string_view("QLql").find(format.back()) == std::string_view::npos ||
            length > UINT32_MAX ||
            (length > 0 && reinterpret_cast<uintptr_t>(held.at()) % alignof(uint64_t) != 0)) {
            const std::string words = std::string(what) + ": an array of 64-bit numbers is needed";
            refuse(SL_ERR_INVALID, words.c_str());
        }
        at = static_cast<const uint64_t *>(held.at());
        count = static_cast<uint32_t>(length);
    }
    const uint64_t *at = nullptr;
    uint32_t count = 0;

  private:
    buffer held;
};

/* ---- keys: prefix, page, suffix ---- */

/* Keys made of the parameters keys, prefix and suffixes. */
struct page_keys {
    page_keys(PyObject *pages, PyObject *prefix, PyObject *suffixes);

    std::string text;
    std::vector<sl_object_key> at; /* [page_count][value_count] */
    std::vector<sl_err> codes;
    uint32_t page_count, value_count = 1, count; /* values of a page, of all pages */
};

static std::vector<std::string_view> texts_of(const items &given)
{
    std::vector<std::string_view> texts(given.count);
    for (uint32_t i = 0; i < given.count; i++) {
        texts[i] = py::text(given[i]);
    }
    return texts;
}

/* suffixes NULL: a page has one value, whose key has no suffix. */
page_keys::page_keys(PyObject *pages, PyObject *prefix, PyObject *suffixes)
{
    const items page_list(pages, batch_max, "keys");
    std::optional<items> suffix_list;
    std::vector<std::string_view> ends = {""};
    if (suffixes != nullptr) {
        ends = texts_of(suffix_list.emplace(suffixes, batch_max, "suffixes"));
    }
    page_count = page_list.count;
    value_count = static_cast<uint32_t>(ends.size());
    if (value_count == 0 || page_count > batch_max / value_count) {
        refuse(SL_ERR_INVALID, "a batch has at most 65536 values, and a page at least one");
    }
    const std::string_view before = prefix == nullptr ? "" : py::text(prefix);
    const std::vector<std::string_view> names = texts_of(page_list);
    const auto sum = [](const std::vector<std::string_view> &each) {
        return std::accumulate(each.begin(), each.end(), size_t{0},
                               [](size_t all, std::string_view one) { return all + one.size(); });
    };
    count = page_count * value_count;
    at = room<sl_object_key>(count);
    codes = room<sl_err>(count);
    text.reserve(count * before.size() + sum(names) * value_count + sum(ends) * page_count);
    auto key = at.begin();
    for (const std::string_view name : names) {
        for (const std::string_view end : ends) {
            const size_t from = text.size();
            text.append(before).append(name).append(end);
            const size_t length = text.size() - from;
            if (length < 1 || length > 1024 || text.find('\0', from) != std::string::npos) {
                refuse(SL_ERR_INVALID, "a key has 1 to 1024 bytes in UTF-8 and no NUL");
            }
            *key++ = {text.data() + from, static_cast<uint32_t>(length)};
        }
    }
}

/* Returns a byte for each page: 0, or the code of its first value that failed. */
static ref page_codes(const page_keys &keys)
{
    std::string result(keys.page_count, '\0');
    for (uint32_t page = 0; page < keys.page_count; page++) {
        const sl_err *from = &keys.codes[size_t{page} * keys.value_count];
        const sl_err *end = from + keys.value_count;
        const sl_err *bad = std::find_if(from, end, [](sl_err code) { return code != SL_OK; });
        result[page] = static_cast<char>(bad == end ? SL_OK : *bad);
    }
    return bytes(result.data(), result.size());
}

/* ---- pieces ---- */

/* Pages and their addresses, from the parameters of PAGE_WORDS. */
class pages
{
  public:
    static constexpr size_t parameters = 14;
    explicit pages(PyObject *const *given);

    page_keys keys;
    std::vector<sl_iov_list> values;
    std::vector<uint64_t> wanted,
        found; /* bytes of each value: expected, of one page; read, of all */
    uint64_t timeout_ns;

  private:
    void check_shapes() const;
    [[nodiscard]] bool indices_fine() const;
    [[nodiscard]] uint64_t piece_count(uint32_t piece) const
    {
        return counts.count == 0 ? 1 : counts.at[piece];
    }
    [[nodiscard]] uint64_t pieces_of_page() const;
    uint64_t fill_value(uint64_t page, uint32_t value);
    void fill();

    u64s indices;
    uint64_t page, limit;
    u64s addresses, strides, lengths, offsets, counts, steps; /* [values][pieces] */
    u64s sizes;                                               /* [values] */
    std::vector<sl_iov> pieces;
};
#define PAGE_WORDS                                                                             \
    "(keys, indices, page, limit, addresses, strides, lengths, *, prefix='', suffixes=('',), " \
    "offsets=None, counts=None, steps=None, sizes=None, timeout=None)"

pages::pages(PyObject *const *given)
    : keys(given[0], given[7], given[8]), timeout_ns(timeout(given[13])),
      indices(given[1], "indices"), page(u64(given[2])), limit(u64(given[3])),
      addresses(given[4], "addresses"), strides(given[5], "strides"), lengths(given[6], "lengths"),
      offsets(given[9], "offsets"), counts(given[10], "counts"), steps(given[11], "steps"),
      sizes(given[12], "sizes")
{
    check_shapes();
    const uint64_t each = pieces_of_page();
    if (keys.page_count > 0 && (each == 0 || each > pieces_max / keys.page_count)) {
        refuse(SL_ERR_INVALID, "a call has 1 to 1048576 pieces");
    }
    pieces.reserve(each * keys.page_count);
    values = room<sl_iov_list>(keys.count);
    wanted = room<uint64_t>(keys.value_count);
    found = room<uint64_t>(keys.count);
    fill();
}

/* Whether the indices are runs of `page` ones below the limit, each from a multiple of `page`. */
bool pages::indices_fine() const
{
    const uint64_t *at = indices.at;
    for (uint32_t i = 0; i < keys.page_count; i++, at += page) {
        if (at[0] % page != 0 || at[0] >= limit || limit - at[0] < page) {
            return false;
        }
        for (uint64_t n = 1; n < page; n++) {
            if (at[n] != at[0] + n) {
                return false;
            }
        }
    }
    return true;
}

void pages::check_shapes() const
{
    const uint32_t count = lengths.count;
    if (page == 0 || indices.count / page != keys.page_count || indices.count % page != 0) {
        refuse(SL_ERR_INVALID, "each key needs `page` indices");
    }
    if (count == 0 || count % keys.value_count != 0 || addresses.count != count ||
        strides.count != count || (sizes.count != 0 && sizes.count != keys.value_count)) {
        refuse(SL_ERR_INVALID,
               "addresses, strides and lengths: one for each piece, the same number for each "
               "value; sizes: one for each value");
    }
    for (const u64s *each : {&offsets, &counts, &steps}) {
        if (each->count != 0 && each->count != count) {
            refuse(SL_ERR_INVALID, "offsets, counts and steps: one for each piece, or none");
        }
    }
    if (counts.count != steps.count) {
        refuse(SL_ERR_INVALID, "counts and steps: pass both or none");
    }
    if (!indices_fine()) {
        refuse(SL_ERR_INVALID,
               "indices of a page are consecutive, below the limit, and begin at a multiple of "
               "the page's length");
    }
}

/* Returns 0 if there are too many. */
uint64_t pages::pieces_of_page() const
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < lengths.count; i++) {
        const uint64_t count = piece_count(i);
        if (count > pieces_max || sum + count > pieces_max) {
            return 0;
        }
        sum += count;
    }
    return sum;
}

/* Appends the pieces of one value of one page; returns the value's bytes. */
uint64_t pages::fill_value(uint64_t number, uint32_t value)
{
    const uint32_t each = lengths.count / keys.value_count;
    uint64_t offset = 0, sum = 0;
    for (uint32_t i = value * each; i < (value + 1) * each; i++) {
        const uint64_t count = piece_count(i), length = lengths.at[i];
        uint64_t address = addresses.at[i] + number * strides.at[i];
        offset = offsets.count == 0 ? offset : offsets.at[i];
        for (uint64_t n = 0; n < count; n++) {
            pieces.push_back({reinterpret_cast<void *>(address), length, offset});
            offset += length;
            address += steps.count == 0 ? 0 : steps.at[i];
        }
        sum += count * length;
    }
    return sum;
}

void pages::fill()
{
    for (uint32_t value = 0; value < keys.count; value++) {
        const uint32_t of_page = value % keys.value_count;
        const uint64_t number = indices.at[value / keys.value_count * page] / page;
        const size_t from = pieces.size();
        const uint64_t sum = fill_value(number, of_page);
        values[value].key = keys.at[value];
        values[value].at =
            pieces.data() + from; /* capacity is reserved for all: they do not move */
        values[value].count = static_cast<uint32_t>(pieces.size() - from);
        wanted[of_page] = sizes.count == 0 ? sum : sizes.at[of_page];
    }
}

static ref put_pages(client &self, pages &given)
{
    self.ask([&](sl_error *why) {
        return sl_putv(self.at, given.values.data(), given.keys.count, nullptr,
                       given.keys.codes.data(), given.timeout_ns, why);
    });
    return page_codes(given.keys);
}

/* A value whose size is not the expected one belongs to another layout: SL_ERR_LIMIT. */
static ref get_pages(client &self, pages &given)
{
    self.ask([&](sl_error *why) {
        return sl_getv(self.at, given.values.data(), given.keys.count, false, given.found.data(),
                       given.keys.codes.data(), given.timeout_ns, why);
    });
    for (uint32_t i = 0; i < given.keys.count; i++) {
        if (given.keys.codes[i] == SL_OK &&
            given.found[i] != given.wanted[i % given.keys.value_count]) {
            given.keys.codes[i] = SL_ERR_LIMIT;
        }
    }
    return page_codes(given.keys);
}

/* ---- lookup ---- */

static ref find_pages(client &self, PyObject *names, PyObject *prefix, PyObject *suffixes,
                      bool elsewhere, timeout wait)
{
    page_keys keys(names, prefix, suffixes);
    self.ask([&](sl_error *why) {
        if (!elsewhere) {
            return sl_exists_batch(self.at, keys.at.data(), keys.count, keys.codes.data());
        }
        look_at(self.at, keys.at.data(), keys.count, keys.codes.data(), wait, why);
        return SL_OK;
    });
    return page_codes(keys);
}

/* ---- registered memory ---- */

static void register_memory(client &, uint64_t address, uint64_t length_bytes)
{
    ask([&](sl_error *why) {
        return sl_memory_register(reinterpret_cast<const void *>(address), length_bytes, why);
    });
}

static void unregister_memory(client &, uint64_t address)
{
    ask([&](sl_error *why) {
        return sl_memory_unregister(reinterpret_cast<const void *>(address), why);
    });
}

void pages_methods(methods &client)
{
    add(client,
        METHOD("put_pages", PAGE_WORDS, put_pages,
               "Stores pages directly from memory, a value for each suffix. Returns a byte for "
               "each page: 0, or the code of its first value that was not stored."),
        METHOD("get_pages", PAGE_WORDS, get_pages,
               "Reads values directly into pages. Returns a byte for each page as put_pages "
               "does; LIMIT: the value has another size."),
        METHOD("find_pages", "(keys, *, prefix='', suffixes=('',), elsewhere=False, timeout=None)",
               find_pages,
               "Looks pages up. Returns a byte for each page: 0 if all its values exist, or a "
               "code. elsewhere: asks other nodes for values that this node lacks."),
        METHOD("register_memory", "(address, length, /)", register_memory,
               "Registers memory of pages for the process, which saves calls of the GPU driver."),
        METHOD("unregister_memory", "(address, /)", unregister_memory,
               "Ends the last register_memory of that address."));
}

} // namespace py
