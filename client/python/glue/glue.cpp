/* client/python/glue/glue.cpp - conversions of numbers and texts, and arguments of calls. */
#include "client/python/glue/glue.hpp"

#include <algorithm>

namespace py
{

/* ---- values ---- */

uint64_t u64_other(PyObject *number)
{
    const ref whole = own(PyNumber_Index(number));
    const uint64_t value = PyLong_AsUnsignedLongLong(whole.get());
    check(value != static_cast<uint64_t>(-1) || PyErr_Occurred() == nullptr);
    return value;
}

uint32_t u32(PyObject *number)
{
    const uint64_t value = u64(number);
    if (value > UINT32_MAX) {
        fail(PyExc_OverflowError, "a 32-bit number is needed");
    }
    return static_cast<uint32_t>(value);
}

std::string_view text(PyObject *string)
{
    Py_ssize_t length = 0;
    const char *at = sure(PyUnicode_AsUTF8AndSize(string, &length));
    return {at, static_cast<size_t>(length)};
}

const char *c_text(PyObject *string)
{
    const std::string_view whole = text(string);
    if (std::memchr(whole.data(), '\0', whole.size()) != nullptr) {
        fail(PyExc_ValueError, "embedded null character");
    }
    return whole.data();
}

/* ---- arguments ---- */

void signature::read(const char *doc)
{
    std::string_view left(doc);
    *this = signature();
    name = left.substr(0, left.find('('));
    left = left.substr(name.size() + 1, left.find(")\n--") - name.size() - 1);
    bool words_alone = false;
    while (!left.empty()) {
        const std::string_view part = left.substr(0, left.find(", "));
        left.remove_prefix(std::min(left.size(), part.size() + 2));
        if (part == "*") {
            words_alone = true;
        } else if (part == "/") {
            named_from = count;
        } else {
            const size_t length = part.find('=');
            optional |= (length != std::string_view::npos ? 1u : 0u) << count;
            words[count++] = part.substr(0, length);
            positional_count += words_alone ? 0 : 1;
        }
    }
}

void signature::positional(Py_ssize_t given_count) const
{
    if (static_cast<size_t>(given_count) > positional_count) {
        fail(PyExc_TypeError, "%s() takes at most %zu positional arguments (%zd given)",
             name.c_str(), positional_count, given_count);
    }
}

void signature::named(PyObject *word, PyObject *value, PyObject **out) const
{
    const std::string_view given = text(word);
    for (size_t i = named_from; i < count; i++) {
        if (words[i] == given) {
            if (out[i] != nullptr) {
                fail(PyExc_TypeError, "%s() got multiple values for argument '%U'", name.c_str(),
                     word);
            }
            out[i] = value;
            return;
        }
    }
    fail(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", name.c_str(), word);
}

void signature::complete(PyObject *const *out) const
{
    for (size_t i = 0; i < count; i++) {
        if (out[i] == nullptr && (optional >> i & 1) == 0) {
            fail(PyExc_TypeError, "%s() missing required argument '%s'", name.c_str(),
                 words[i].c_str());
        }
    }
}

void signature::sort(PyObject *const *given, Py_ssize_t given_count, PyObject *names,
                     PyObject **out) const
{
    positional(given_count);
    for (Py_ssize_t i = 0; i < given_count; i++) {
        out[i] = given[i];
    }
    for (Py_ssize_t i = 0; names != nullptr && i < PyTuple_Size(names); i++) {
        named(PyTuple_GetItem(names, i), given[given_count + i], out);
    }
    complete(out);
}

void signature::sort(PyObject *args, PyObject *names, PyObject **out) const
{
    PyObject *word = nullptr, *value = nullptr;
    Py_ssize_t at = 0;
    positional(PyTuple_Size(args));
    for (Py_ssize_t i = 0; i < PyTuple_Size(args); i++) {
        out[i] = PyTuple_GetItem(args, i);
    }
    while (names != nullptr && PyDict_Next(names, &at, &word, &value) != 0) {
        named(word, value, out);
    }
    complete(out);
}

} // namespace py
