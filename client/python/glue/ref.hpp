/* client/python/glue/ref.hpp - references, the interpreter's lock (GIL), and entries from the
 * interpreter.
 *
 * A Python exception is passed on as py::raised, which every entry from the interpreter catches.
 * Destructors release the references and buffers that a call took, with the GIL held. */
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

/* Checks a result of the C API: NULL or false means that an exception is set. */
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

/* An owned reference. */
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
inline ref own(PyObject *given) /* given: a new reference, or NULL on failure */
{
    return ref(sure(given));
}
inline ref share(PyObject *borrowed)
{
    return ref(Py_NewRef(borrowed));
}

/* Before 3.14 CPython unwinds a thread that takes the GIL while the interpreter shuts down.
 * Destructors would then abort the process, so the thread blocks forever instead. The exception has
 * no object: the reference is null, hence no_sanitize. */
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

/* Releases the GIL in its scope. */
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

/* Wraps an entry from the interpreter: returns NULL or -1 with an exception set. */
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
