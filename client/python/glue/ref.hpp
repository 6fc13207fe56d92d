/* client/python/glue/ref.hpp - references, the interpreter's lock, and entries from the
 * interpreter.
 *
 * An exception of Python travels as py::raised, which every entry from the interpreter catches.
 * What a call takes is released by destructors, with the interpreter's lock (GIL) held. */
#ifndef SL_CLIENT_PYTHON_GLUE_REF_HPP
#define SL_CLIENT_PYTHON_GLUE_REF_HPP

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cxxabi.h>
#include <new>
#include <type_traits>
#include <unistd.h>
#include <utility>

namespace py
{

struct raised { /* thrown where an exception of Python is set */
};

/* Of what the C API gives, NULL or false with an exception. */
template <typename T> T *sure(T *given)
{
    return given != nullptr ? given : throw raised();
}
inline void check(bool fine)
{
    if (!fine) {
        throw raised();
    }
}
template <typename... A> [[noreturn]] void fail(PyObject *type, const char *format, A... values)
{
    PyErr_Format(type, format, values...);
    throw raised();
}

/* A reference that is owned. */
class ref
{
  public:
    ref() = default;
    explicit ref(PyObject *taken) : at(taken)
    {
    }
    ref(ref &&other) noexcept : at(other.release())
    {
    }
    ref &operator=(ref other) noexcept
    {
        std::swap(at, other.at);
        return *this;
    }
    ~ref()
    {
        Py_XDECREF(at);
    }
    [[nodiscard]] PyObject *get() const
    {
        return at;
    }
    PyObject *release()
    {
        return std::exchange(at, nullptr);
    }

  private:
    PyObject *at = nullptr;
};
inline ref own(PyObject *given) /* a new reference of the C API, or a failure */
{
    return ref(sure(given));
}
inline ref share(PyObject *borrowed)
{
    return ref(Py_NewRef(borrowed));
}

/* Before 3.14 CPython unwinds a thread that comes for its lock while it ends. Destructors would end
 * the process then: the thread stays. The unwinding has no object, only a reference that binds
 * nothing. */
template <typename F> __attribute__((no_sanitize("null"))) auto staying(F call) -> decltype(call())
{
    try {
        return call();
    } catch (const abi::__forced_unwind &) {
        for (;;) {
            (void)pause();
        }
    }
}

/* The interpreter's lock is free in its scope. */
class unlocked
{
  public:
    unlocked() : thread(PyEval_SaveThread())
    {
    }
    unlocked(const unlocked &) = delete;
    ~unlocked()
    {
        staying([&] { PyEval_RestoreThread(thread); });
    }

  private:
    PyThreadState *thread;
};

/* An entry from the interpreter: NULL or -1 with an exception. */
template <typename F> auto guarded(F call) noexcept -> decltype(call())
{
    try {
        return staying(call);
    } catch (const raised &) { /* set already */
    } catch (const std::bad_alloc &) {
        PyErr_NoMemory();
    }
    if constexpr (std::is_pointer_v<decltype(call())>) {
        return nullptr;
    } else {
        return -1;
    }
}

} // namespace py

#endif
