/* client/python/convert.cpp - converts values between Python and libsluice. */
#include "client/python/internal.hpp"

#include <algorithm>

namespace py
{

constexpr double ns_per_s = 1e9;
constexpr double timeout_s_max = 1e9; /* 30 years; longer ones are cut to it */
constexpr size_t key_bytes_max = 1024;

seconds::seconds(PyObject *given)
{
    if (given == nullptr || given == Py_None) {
        return;
    }
    const double value = PyFloat_AsDouble(given);
    check(value != -1.0 || PyErr_Occurred() == nullptr);
    if (!(value >= 0)) { /* also true of NaN */
        fail(PyExc_ValueError, "a time is in seconds, 0 or more");
    }
    ns = static_cast<uint64_t>(std::min(value, timeout_s_max) * ns_per_s);
    ns = ns == 0 && value > 0 ? 1 : ns;
}

timeout::timeout(PyObject *given) : seconds(given)
{
    ns = ns == 0 && given != nullptr && given != Py_None ? 1 : ns;
}

/* libsluice accepts any bytes without NUL, but only UTF-8 can be listed and logged. */
static std::string_view key_of_bytes(PyObject *object)
{
    char *at = nullptr;
    Py_ssize_t length = 0;
    check(PyBytes_AsStringAndSize(object, &at, &length) == 0);
    for (Py_ssize_t i = 0; i < length; i++) {
        if (static_cast<unsigned char>(at[i]) >= 0x80) { /* rare: decode it to check */
            own(PyUnicode_DecodeUTF8(at, length, nullptr));
            break;
        }
    }
    return {at, static_cast<size_t>(length)};
}

key::key(PyObject *given) : sl_object_key()
{
    std::string_view whole;
    if (PyUnicode_Check(given)) {
        whole = text(given);
    } else if (PyBytes_Check(given)) {
        whole = key_of_bytes(given);
    } else {
        fail(PyExc_TypeError, "a key is str, or bytes in UTF-8");
    }
    if (whole.empty() || whole.size() > key_bytes_max ||
        std::memchr(whole.data(), '\0', whole.size()) != nullptr) {
        refuse(SL_ERR_INVALID, "a key has 1 to 1024 bytes in UTF-8 and no NUL");
    }
    at = whole.data();
    length = static_cast<uint32_t>(whole.size());
}

static void count_check(Py_ssize_t count, size_t count_max, const char *what)
{
    if (static_cast<size_t>(count) > count_max) {
        const std::string words = std::string(what) + ": at most " + std::to_string(count_max) +
                                  ", not " + std::to_string(count);
        refuse(SL_ERR_INVALID, words.c_str());
    }
}

items::items(PyObject *sequence, size_t count_max, const char *what)
{
    if (PySequence_Check(sequence) == 0 || PyUnicode_Check(sequence) || PyBytes_Check(sequence)) {
        fail(PyExc_TypeError, "%s: a sequence is needed", what);
    }
    const Py_ssize_t length = PySequence_Size(sequence);
    check(length >= 0);
    count_check(length, count_max, what);
    tuple = own(PySequence_Tuple(sequence));
    count_check(PyTuple_Size(tuple.get()), count_max, what); /* the sequence may have grown */
    count = static_cast<uint32_t>(PyTuple_Size(tuple.get()));
}

keys::keys(PyObject *sequence)
    : held(sequence, batch_max, "keys"), at(room<sl_object_key>(held.count)),
      codes(room<sl_err>(held.count)), count(held.count)
{
    for (uint32_t i = 0; i < count; i++) {
        at[i] = key(held[i]);
    }
}

ref codes_list(const sl_err *codes, size_t count)
{
    return list_of(count, [&](size_t i) { return codes[i]; });
}

std::vector<buffer> buffers_of(PyObject *sequence, uint32_t count, int flags)
{
    const items given(sequence, batch_max, "buffers");
    std::vector<buffer> taken;
    if (given.count != count) {
        refuse(SL_ERR_INVALID, "a batch has as many buffers as keys");
    }
    taken.reserve(count);
    for (uint32_t i = 0; i < count; i++) {
        taken.emplace_back(given[i], flags); /* keeps the object alive */
    }
    return taken;
}

/* ---- tokens and blocks ---- */

static bool is_u32s(const Py_buffer &view)
{
    static const char *const formats[] = {"I", "=I", "<I", "@I", "L", "=L", "<L"};
    return view.itemsize == sizeof(uint32_t) && view.format != nullptr && view.ndim == 1 &&
           reinterpret_cast<uintptr_t>(view.buf) % alignof(uint32_t) == 0 &&
           std::any_of(std::begin(formats), std::end(formats),
                       [&](const char *each) { return std::strcmp(view.format, each) == 0; });
}

/* Returns true if the object is a buffer of 32-bit numbers, which is then used in place. */
bool u32s::view(PyObject *object, size_t count_max, const char *what)
{
    if (PyObject_CheckBuffer(object) == 0) {
        return false;
    }
    buffer found;
    if (PyObject_GetBuffer(object, &found.view, PyBUF_ND | PyBUF_FORMAT) != 0) {
        PyErr_Clear(); /* not contiguous: copied item by item */
        return false;
    }
    if (!is_u32s(found.view)) {
        return false;
    }
    const size_t length = found.size() / sizeof(uint32_t);
    count_check(static_cast<Py_ssize_t>(length), count_max, what);
    at = static_cast<const uint32_t *>(found.at());
    count = static_cast<uint32_t>(length);
    viewed.emplace(std::move(found));
    return true;
}

void u32s::take(PyObject *object, size_t count_max, const char *what)
{
    if (view(object, count_max, what)) {
        return;
    }
    const items given(object, count_max, what);
    copied = room<uint32_t>(given.count);
    count = given.count;
    at = copied.data();
    for (uint32_t i = 0; i < count; i++) {
        copied[i] = u32(given[i]);
    }
}

} // namespace py
