/* client/python/glue/glue.hpp - C++ functions and types for Python, on the stable ABI of
 * CPython 3.11: arguments, results, types. ref.hpp has references and the lock. */
#ifndef SL_CLIENT_PYTHON_GLUE_GLUE_HPP
#define SL_CLIENT_PYTHON_GLUE_GLUE_HPP

#include "client/python/glue/ref.hpp"

#include <cstdint>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace py
{

/* ---- values for Python ---- */

/* Invalid UTF-8 is replaced. */
template <typename T> ref give(T value)
{
    if constexpr (std::is_same_v<T, ref>) {
        return value;
    } else if constexpr (std::is_same_v<T, bool>) {
        return own(PyBool_FromLong(value));
    } else if constexpr (std::is_floating_point_v<T>) {
        return own(PyFloat_FromDouble(value));
    } else if constexpr (std::is_enum_v<T>) {
        return own(PyLong_FromLong(static_cast<long>(value)));
    } else if constexpr (std::is_unsigned_v<T>) {
        return own(PyLong_FromUnsignedLongLong(value));
    } else if constexpr (std::is_integral_v<T>) {
        return own(PyLong_FromLongLong(value));
    } else {
        const std::string_view text(value);
        return own(
            PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
    }
}
inline ref none()
{
    return share(Py_None);
}
inline ref bytes(const void *at, size_t count)
{
    return own(
        PyBytes_FromStringAndSize(static_cast<const char *>(at), static_cast<Py_ssize_t>(count)));
}
template <typename F> ref list_of(size_t count, F item)
{
    ref list = own(PyList_New(static_cast<Py_ssize_t>(count)));
    for (size_t i = 0; i < count; i++) {
        check(PyList_SetItem(list.get(), static_cast<Py_ssize_t>(i), give(item(i)).release()) == 0);
    }
    return list;
}
template <typename... A> ref tuple(A... items)
{
    ref made = own(PyTuple_New(sizeof...(A)));
    Py_ssize_t i = 0;
    (check(PyTuple_SetItem(made.get(), i++, give(std::move(items)).release()) == 0), ...);
    return made;
}
/* Returns a record: an object of the type with these fields. */
template <typename... A> ref record(PyObject *type, A... fields)
{
    const ref given = tuple(std::move(fields)...);
    return own(staying([&] { return PyObject_CallObject(type, given.get()); })); /* runs Python */
}

/* ---- values from Python ---- */

/* number: an int, or an object with __index__. */
uint64_t u64_other(PyObject *number);
/* Twice as fast as PyLong_AsUnsignedLongLong for an address, which has two of CPython's digits. */
inline uint64_t u64(PyObject *number)
{
    if (PyLong_Check(number)) {
        int overflow = 0;
        const long value = PyLong_AsLongAndOverflow(number, &overflow);
        if (overflow == 0 && value >= 0) {
            return static_cast<uint64_t>(value);
        }
    }
    return u64_other(number);
}
uint32_t u32(PyObject *number);
std::string_view text(PyObject *string); /* UTF-8 of a str; borrowed from it */
const char *c_text(PyObject *string);    /* as text(); raises if it contains NUL */

/* A text; NULL for None. */
struct text_or_none {
    const char *at;
    explicit text_or_none(PyObject *given)
        : at(given == nullptr || given == Py_None ? nullptr : c_text(given))
    {
    }
    operator const char *() const
    {
        return at;
    }
};

template <typename T> constexpr bool is_optional = false;
template <typename T> constexpr bool is_optional<std::optional<T>> = true;
/* Converts an argument to a parameter of type T; NULL: the argument was not passed. */
template <typename T> T taken(PyObject *given)
{
    if constexpr (std::is_same_v<T, PyObject *>) {
        return given;
    } else if constexpr (is_optional<T>) {
        return given == nullptr ? T() : T(taken<typename T::value_type>(given));
    } else if constexpr (std::is_same_v<T, uint64_t>) {
        return given == nullptr ? 0 : u64(given);
    } else if constexpr (std::is_same_v<T, uint32_t>) {
        return given == nullptr ? 0 : u32(given);
    } else if constexpr (std::is_same_v<T, bool>) {
        const int is = given == nullptr ? 0 : PyObject_IsTrue(given);
        check(is >= 0);
        return is != 0;
    } else if constexpr (std::is_same_v<T, const char *>) {
        return given == nullptr ? nullptr : c_text(given);
    } else {
        return T(given);
    }
}

/* ---- functions ---- */

/* Parameters of a function, read from the beginning of its docstring: "put(key, value, *,
 * timeout=None)\n--\n\n". */
constexpr size_t parameters_max = 24;
class signature
{
  public:
    void read(const char *doc);
    /* Assign a call's arguments to parameters, for both calling conventions. */
    void sort(PyObject *const *given, Py_ssize_t count, PyObject *names, PyObject **out) const;
    void sort(PyObject *args, PyObject *names, PyObject **out) const;

  private:
    void positional(Py_ssize_t count) const;
    void named(PyObject *name, PyObject *value, PyObject **out) const;
    void complete(PyObject *const *out) const;

    std::string name, words[parameters_max];
    size_t count = 0, positional_count = 0, named_from = 0;
    uint32_t optional = 0; /* bit i: words[i] has a default */
};

/* A Python object that holds a T stores it after its PyObject header. */
template <typename T> T &of(PyObject *object)
{
    static_assert(alignof(T) <= sizeof(PyObject));
    return *reinterpret_cast<T *>(reinterpret_cast<char *>(object) + sizeof(PyObject));
}
template <typename T> PyObject *object(T *it)
{
    return reinterpret_cast<PyObject *>(reinterpret_cast<char *>(it) - sizeof(PyObject));
}
inline void release_memory(PyObject *gone)
{
    PyTypeObject *type = Py_TYPE(gone);
    reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(gone);
    Py_DECREF(reinterpret_cast<PyObject *>(type));
}
template <typename T, typename... A> ref make(PyTypeObject *type, A &&...values)
{
    PyObject *made = sure(reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc))(type, 0));
    try {
        new (&of<T>(made)) T{std::forward<A>(values)...};
    } catch (...) { /* no T was made: only memory to free */
        release_memory(made);
        throw;
    }
    return ref(made);
}
template <typename T> void dealloc(PyObject *gone)
{
    of<T>(gone).~T();
    release_memory(gone);
}

/* Calls function(first, arguments ...). Arguments are converted in order and destroyed in reverse.
 * A type with a constant `parameters` is made from as many arguments. */
template <size_t at, size_t from, typename F, typename S, typename R, typename... A, typename... T>
PyObject *run(F function, S &first, PyObject *const *given, R (*type)(S &, A...), T &...before)
{
    if constexpr (at < sizeof...(A)) {
        using wanted = std::tuple_element_t<at, std::tuple<std::remove_cvref_t<A>...>>;
        if constexpr (requires { wanted::parameters; }) {
            wanted next(given + from);
            return run<at + 1, from + wanted::parameters>(function, first, given, type, before...,
                                                          next);
        } else {
            wanted next = taken<wanted>(given[from]);
            return run<at + 1, from + 1>(function, first, given, type, before..., next);
        }
    } else if constexpr (std::is_void_v<R>) {
        function(first, before...);
        return Py_NewRef(Py_None);
    } else {
        return give(function(first, before...)).release();
    }
}

struct module { /* first parameter of a module's function */
};
/* Entry points of a function that Python calls: R function(S &self, A...). */
template <auto function> struct entry {
    static inline signature words;

    template <typename R, typename S, typename... A>
    static PyObject *start(PyObject *self, PyObject *const *given, R (*type)(S &, A...))
    {
        if constexpr (std::is_same_v<S, module>) {
            module none;
            return run<0, 0>(function, none, given, type);
        } else if constexpr (std::is_same_v<S, PyTypeObject>) {
            return run<0, 0>(function, *reinterpret_cast<PyTypeObject *>(self), given, type);
        } else {
            return run<0, 0>(function, of<S>(self), given, type);
        }
    }
    static PyObject *call(PyObject *self, PyObject *const *args, Py_ssize_t count,
                          PyObject *names) noexcept
    {
        return guarded([&] {
            PyObject *given[parameters_max] = {};
            words.sort(args, count, names, given);
            return start(self, given, function);
        });
    }
    static PyObject *create(PyTypeObject *type, PyObject *args, PyObject *names) noexcept
    {
        return guarded([&] {
            PyObject *given[parameters_max] = {};
            words.sort(args, names, given);
            return start(reinterpret_cast<PyObject *>(type), given, function);
        });
    }
    static PyObject *attribute(PyObject *self, void *) noexcept
    {
        return guarded([&] { return start(self, nullptr, function); });
    }
};
template <auto function> PyMethodDef method(const char *name, const char *doc)
{
    entry<function>::words.read(doc);
    return {name,
            reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(entry<function>::call)),
            METH_FASTCALL | METH_KEYWORDS, doc};
}
/* METHOD("put", "(key, value, *, timeout=None)", client_put, "Stores ...") */
#define METHOD(name, words, function, doc) py::method<function>(name, name words "\n--\n\n" doc)
template <auto function> PyType_Slot maker(const char *doc)
{
    entry<function>::words.read(doc);
    return {Py_tp_new, reinterpret_cast<void *>(entry<function>::create)};
}
template <auto function> PyGetSetDef attribute(const char *name, const char *doc)
{
    return {name, entry<function>::attribute, nullptr, doc, nullptr};
}

/* Adds a type whose objects hold a T. The type is never freed, since a module that was imported
 * again may be destroyed before its users. Python code can create objects only if slots has a
 * maker. methods, attributes: NULL: none. */
template <typename T>
PyTypeObject *add_type(PyObject *module, const char *name, const char *doc, PyMethodDef *methods,
                       PyGetSetDef *attributes, std::vector<PyType_Slot> slots,
                       unsigned long flags = 0)
{
    bool made = false;
    for (const PyType_Slot &slot : slots) {
        made = made || slot.slot == Py_tp_new;
    }
    slots.push_back({Py_tp_doc, const_cast<char *>(doc)});
    slots.push_back({Py_tp_dealloc, reinterpret_cast<void *>(dealloc<T>)});
    if (methods != nullptr) {
        slots.push_back({Py_tp_methods, methods});
    }
    if (attributes != nullptr) {
        slots.push_back({Py_tp_getset, attributes});
    }
    slots.push_back({0, nullptr});
    PyType_Spec spec = {name, static_cast<int>(sizeof(PyObject) + sizeof(T)), 0,
                        static_cast<unsigned>(Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE |
                                              flags |
                                              (made ? 0 : Py_TPFLAGS_DISALLOW_INSTANTIATION)),
                        slots.data()};
    auto *type = reinterpret_cast<PyTypeObject *>(
        own(PyType_FromModuleAndSpec(module, &spec, nullptr)).release());
    check(PyModule_AddType(module, type) == 0);
    return type;
}
inline void set_attribute(PyObject *object, const char *name, const ref &value)
{
    check(PyObject_SetAttrString(object, name, value.get()) == 0);
}

} // namespace py

#endif
