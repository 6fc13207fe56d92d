/* client/mooncake/python/arguments.cpp - converts arguments of the store's calls. */
#include "client/mooncake/python/internal.hpp"

namespace mc
{

PyObject *mismatch(const char *doc, PyObject *names) noexcept
{
    if (!PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_OverflowError) &&
        !PyErr_ExceptionMatches(PyExc_ValueError)) {
        return nullptr;
    }
    PyErr_Clear();
    return py::guarded([&]() -> PyObject * {
        const std::string_view whole(doc);
        const std::string words(whole.substr(0, whole.find("\n--")));
        const py::ref given = names == nullptr ? py::give("()") : py::own(PyObject_Str(names));
        py::fail(PyExc_TypeError,
                 "%s: incompatible function arguments. The following argument types are "
                 "supported:\n    1. %s\n(a key is str or bytes, a value a buffer, config a "
                 "mooncake.store.ReplicateConfig, all else int, bool, or lists of them)\n\n"
                 "Invoked with: kwargs: %U",
                 words.substr(0, words.find('(')).append("()").c_str(), words.c_str(), given.get());
    });
}

/* ---- one value ---- */

static sl_object_key key_of(std::string_view text)
{
    return {text.data(), static_cast<uint32_t>(std::min<size_t>(text.size(), INT32_MAX))};
}

key::key(PyObject *given) : sl_object_key{}
{
    if (PyUnicode_Check(given) || !PyBytes_Check(given)) {
        static_cast<sl_object_key &>(*this) = key_of(py::text(given));
    } else {
        static_cast<sl_object_key &>(*this) =
            key_of({PyBytes_AsString(given), static_cast<size_t>(PyBytes_Size(given))});
    }
}

flag::flag(PyObject *given) : it(false)
{
    if (given == nullptr) {
        return;
    }
    if (PySequence_Check(given) || PyDict_Check(given)) {
        py::fail(PyExc_TypeError, "no bool");
    }
    const int truth = PyObject_IsTrue(given);
    py::check(truth >= 0);
    it = truth == 1;
}

view::~view()
{
    if (held.obj != nullptr) {
        PyBuffer_Release(&held);
    }
}

void view::take(PyObject *given)
{
    if (PyObject_GetBuffer(given, &held, PyBUF_SIMPLE) == 0) {
        return;
    }
    if (!PyErr_ExceptionMatches(PyExc_BufferError) && !PyErr_ExceptionMatches(PyExc_ValueError)) {
        throw py::raised();
    }
    PyErr_Clear();
    py::check(PyObject_GetBuffer(given, &held, PyBUF_FULL_RO) == 0);
    copy = std::make_unique_for_overwrite<char[]>(static_cast<size_t>(held.len) + 1);
    py::check(PyBuffer_ToContiguous(copy.get(), &held, held.len, 'C') == 0);
}

void view::take_part(PyObject *given)
{
    if (PyObject_CheckBuffer(given) == 0) {
        py::fail(PyExc_TypeError, "a part is a buffer");
    }
    if (PyObject_GetBuffer(given, &held, PyBUF_ND) != 0) {
        if (PyErr_ExceptionMatches(PyExc_BufferError) || PyErr_ExceptionMatches(PyExc_ValueError)) {
            PyErr_Clear();
            py::fail(PyExc_RuntimeError, "a part is a contiguous buffer");
        }
        throw py::raised();
    }
    if (held.ndim != 1 || held.itemsize != 1) {
        py::fail(PyExc_RuntimeError, "a part is a one-dimensional buffer of bytes");
    }
}

sl_iov view::piece(uint64_t offset_bytes) const
{
    return {copy != nullptr ? copy.get() : held.buf, static_cast<uint64_t>(held.len), offset_bytes};
}

/* ---- lists ---- */

py::ref list_take(PyObject *given)
{
    if (PyList_CheckExact(given)) {
        return py::own(PyList_GetSlice(given, 0, PyList_Size(given)));
    }
    if (PySequence_Check(given) == 0 || PyUnicode_Check(given) || PyBytes_Check(given)) {
        py::fail(PyExc_TypeError, "no list");
    }
    return py::own(PySequence_List(given));
}

static uint32_t count_of(const py::ref &list)
{
    const Py_ssize_t count = PyList_Size(list.get());
    if (count > INT32_MAX) {
        py::fail(PyExc_ValueError, "a list of more than 2^31 - 1");
    }
    return static_cast<uint32_t>(count);
}

/* Converts numbers one by one, since a conversion may run code that changes the list. */
static void numbers_read(const py::ref &list, uint32_t count, uint64_t *to)
{
    for (uint32_t i = 0; i < count; i++) {
        to[i] = py::u64(py::sure(PyList_GetItem(list.get(), i)));
    }
}

keys::keys(PyObject *given)
    : held(list_take(given)), count(count_of(held)),
      at(std::make_unique_for_overwrite<sl_object_key[]>(count))
{
    for (uint32_t i = 0; i < count; i++) {
        at[i] = key(PyList_GetItem(held.get(), i));
    }
}

numbers::numbers(PyObject *given) : count(0)
{
    const py::ref list = list_take(given);
    count = count_of(list);
    at = std::make_unique_for_overwrite<uint64_t[]>(count);
    numbers_read(list, count, at.get());
}

lists::lists(PyObject *given) : count(0)
{
    const py::ref outer = list_take(given);
    count = count_of(outer);
    counts = std::make_unique_for_overwrite<uint32_t[]>(count);
    std::vector<py::ref> inner;
    inner.reserve(count);
    for (uint32_t i = 0; i < count; i++) {
        PyObject *list = PyList_GetItem(outer.get(), i);
        /* Lists of exactly this type are not copied. */
        inner.push_back(PyList_CheckExact(list) ? py::share(list) : list_take(list));
        counts[i] = count_of(inner.back());
        total += counts[i];
    }
    at = std::make_unique_for_overwrite<uint64_t[]>(total);
    uint64_t *to = at.get();
    for (uint32_t i = 0; i < count; i++) {
        numbers_read(inner[i], counts[i], to);
        to += counts[i];
    }
}

views::views(PyObject *given) : count(0)
{
    const py::ref list = list_take(given);
    count = count_of(list);
    at = std::make_unique<view[]>(count);
    for (uint32_t i = 0; i < count; i++) {
        at[i].take(PyList_GetItem(list.get(), i));
    }
}

/* ---- ReplicateConfig ---- */

static uint32_t at_most_u32(unsigned long long number)
{
    return static_cast<uint32_t>(std::min<unsigned long long>(number, UINT32_MAX));
}

/* Reads _terms of store.py's ReplicateConfig. */
terms::terms(PyObject *given)
{
    if (given == nullptr) {
        return;
    }
    unsigned long long copies = 0, nof_copies = 0, dfs_copies = 0;
    int action = 0, hard_pin = 0, same_node = 0;
    PyObject *ttl_ms = nullptr, *names = nullptr, *bundles = nullptr;
    held = py::ref(PyObject_GetAttrString(given, "_terms"));
    if (held.get() == nullptr || PyTuple_Check(held.get()) == 0 ||
        PyArg_ParseTuple(held.get(), "KKKiOppO!O", &copies, &nof_copies, &dfs_copies, &action,
                         &ttl_ms, &hard_pin, &same_node, &PyTuple_Type, &names, &bundles) == 0) {
        PyErr_Clear();
        py::fail(PyExc_TypeError, "no ReplicateConfig");
    }
    for (Py_ssize_t i = 0; i < PyTuple_Size(names); i++) {
        segments.push_back(py::text(PyTuple_GetItem(names, i)).data());
    }
    for (Py_ssize_t i = 0; bundles != Py_None && i < PyTuple_Size(bundles); i++) {
        groups.push_back(key_of(py::text(PyTuple_GetItem(bundles, i))));
    }
    it.copies = at_most_u32(copies);
    it.nof_copies = at_most_u32(nof_copies);
    it.dfs_copies = at_most_u32(dfs_copies);
    it.soft_pin = static_cast<sl_store_soft_pin>(action);
    it.soft_pin_ttl_given = ttl_ms != Py_None;
    it.soft_pin_ttl_ms = it.soft_pin_ttl_given ? py::u64(ttl_ms) : 0;
    it.hard_pin = hard_pin != 0;
    it.same_node = same_node != 0;
    it.segments = segments.data();
    it.segment_count = static_cast<uint32_t>(segments.size());
    groups.reserve(1); /* an empty list differs from None */
    it.groups = bundles == Py_None ? nullptr : groups.data();
    it.group_count = static_cast<uint32_t>(groups.size());
}

const sl_store_terms *terms::share(uint32_t first, uint32_t count, uint32_t total,
                                   sl_store_terms &out) const
{
    out = it;
    if (it.groups != nullptr && it.group_count == total) { /* else the store refuses them */
        out.groups += first;
        out.group_count = count;
    }
    return held.get() == nullptr ? nullptr : &out;
}

/* ---- pieces ---- */

items::items(const keys &names, const numbers &addrs, const numbers &sizes)
    : at(std::make_unique<sl_iov_list[]>(names.count)),
      pieces(std::make_unique_for_overwrite<sl_iov[]>(names.count))
{
    for (uint32_t i = 0; i < names.count; i++) {
        pieces[i] = {address(addrs.at[i]), sizes.at[i], 0};
        at[i] = {.key = names.at[i], .bundle = {}, .at = &pieces[i], .count = 1};
    }
}

items::items(const keys &names, const lists &addrs, const lists &sizes, const lists *offsets)
    : at(std::make_unique<sl_iov_list[]>(names.count)),
      pieces(std::make_unique_for_overwrite<sl_iov[]>(addrs.total))
{
    const uint64_t *addr = addrs.at.get(), *size = sizes.at.get();
    const uint64_t *offset = offsets == nullptr ? nullptr : offsets->at.get();
    sl_iov *to = pieces.get();
    for (uint32_t i = 0; i < names.count; i++) {
        const uint32_t count = addrs.counts[i];
        const bool fits =
            sizes.counts[i] == count && (offsets == nullptr || offsets->counts[i] == count);
        uint64_t behind = 0;
        at[i] = {.key = names.at[i], .bundle = {}, .at = to, .count = 0};
        for (uint32_t j = 0; fits && j < count; j++) {
            if (size[j] != 0) {
                to[at[i].count++] = {address(addr[j]), size[j],
                                     offset == nullptr ? behind : offset[j]};
            }
            behind += size[j];
        }
        to += at[i].count;
        addr += count;
        size += sizes.counts[i];
        offset += offset == nullptr ? 0 : offsets->counts[i];
    }
}

} // namespace mc
