/* client/python/hashes.cpp - reads an engine's own keys and block tables from Python objects. */
#include "client/python/internal.hpp"

namespace py
{

void hashes::take(PyObject *object, std::optional<uint32_t> each)
{
    hash_bytes = each.value_or(0);
    if (PyObject_CheckBuffer(object) != 0) { /* one run of bytes */
        viewed.emplace(object, PyBUF_SIMPLE);
        const uint64_t length = viewed->size();
        if (hash_bytes == 0 || hash_bytes > SL_HASH_BYTES_MAX || length % hash_bytes != 0 ||
            length / hash_bytes > batch_max) {
            refuse(SL_ERR_INVALID,
                   "hashes: a buffer needs hash_bytes of 1 to 64 that divides its length");
        }
        at = static_cast<const unsigned char *>(viewed->at());
        count = static_cast<uint32_t>(length / hash_bytes);
        return;
    }
    const items given(object, batch_max, "hashes");
    for (uint32_t i = 0; i < given.count; i++) {
        char *from = nullptr;
        Py_ssize_t length = 0;
        check(PyBytes_AsStringAndSize(given[i], &from, &length) == 0);
        if (i == 0 && length >= 1 && length <= SL_HASH_BYTES_MAX) {
            hash_bytes = static_cast<uint32_t>(length);
            copied.reserve(static_cast<size_t>(length) * given.count);
        }
        if (length < 1 || length > SL_HASH_BYTES_MAX ||
            static_cast<uint32_t>(length) != hash_bytes) {
            refuse(SL_ERR_INVALID, "hashes: each has 1 to 64 bytes, and all have the same length");
        }
        copied.insert(copied.end(), from, from + length);
    }
    if (each.value_or(0) != 0 && given.count > 0 && *each != hash_bytes) {
        refuse(SL_ERR_INVALID, "hashes: their length differs from hash_bytes");
    }
    at = copied.data();
    count = given.count;
}

/* Whether the object is a sequence of tables, one for each pool, rather than one table. */
static bool tables_are(PyObject *object)
{
    if (PyObject_CheckBuffer(object) != 0 || PySequence_Size(object) < 1) {
        PyErr_Clear();
        return false;
    }
    const ref first = own(PySequence_GetItem(object, 0));
    return PyObject_CheckBuffer(first.get()) != 0 || PyIndex_Check(first.get()) == 0;
}

void tables::take(PyObject *object)
{
    if (!tables_are(object)) {
        each[0].take(object, batch_max, "blocks");
        return;
    }
    const items given(object, pools_max, "tables of blocks");
    for (uint32_t i = 0; i < given.count; i++) {
        each[i].take(given[i], batch_max, "blocks");
        at[i] = each[i].at;
        if (each[i].count != each[0].count) {
            refuse(SL_ERR_INVALID, "blocks: the tables of one op must have the same length");
        }
    }
    pools = true;
}

} // namespace py
