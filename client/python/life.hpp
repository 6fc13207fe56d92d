/* client/python/life.hpp - Python objects over objects of libsluice: their uses and their end, and
 * calls of libsluice without the GIL (the interpreter's lock).
 *
 * Everything that needs an object of libsluice counts as a use of it. close() refuses new uses at
 * once; the object is released with its last use, so no view, buffer or running call outlives it.
 * Uses are counted with the GIL held. */
#ifndef SL_CLIENT_PYTHON_LIFE_HPP
#define SL_CLIENT_PYTHON_LIFE_HPP

#include "client/include/sluice.h"
#include "client/python/glue/glue.hpp"

namespace py
{

/* Raises the code's exception, with why's text if it has this code, and with an op's result. */
[[noreturn]] void refuse(sl_err code, const sl_error *why, PyObject *result = nullptr);
[[noreturn]] void refuse(sl_err code, const char *text);
/* Number of forks between this process and the one that loaded the module. */
unsigned forks();

/* Calls libsluice without the GIL and raises on failure. sl_err call(sl_error *why). */
template <typename F> void ask(F call)
{
    sl_error why = {};
    sl_err err = SL_OK;
    {
        unlocked now;
        err = call(&why);
    }
    if (err != SL_OK) {
        refuse(err, &why);
    }
}

class life
{
  public:
    /* Releases the object of libsluice. The destructor calls it again, perhaps while another thread
     * is in it without the GIL: so it first moves the object out, and may find none. */
    virtual void end() = 0;
    void enter(); /* adds a use; raises if closed or forked */
    void hold()   /* adds a use while another one exists */
    {
        uses++;
    }
    void leave();
    void close();
    /* Whether the process was forked since; objects of libsluice are not touched then. */
    [[nodiscard]] bool foreign() const
    {
        return born != forks();
    }
    [[nodiscard]] bool closed() const
    {
        return !open;
    }
    template <typename F> void ask(F call);

  protected:
    life(const char *after_close, const char *after_fork) : texts{after_close, after_fork}
    {
    }
    ~life() = default;
    void begin()
    {
        born = forks();
        open = true;
    }

  private:
    const char *texts[2]; /* error texts after close(), after a fork */
    Py_ssize_t uses = 0;  /* running calls, and objects that need it */
    unsigned born = 0;
    bool open = false;
};
/* Holder of an object of libsluice, which it releases at its end, except in a forked child. */
template <typename T, void (*release)(T **)> struct holder : life {
    void started(T *made)
    {
        at = made;
        begin();
    }
    void object_release()
    {
        if (T *gone = std::exchange(at, nullptr); gone != nullptr && !foreign()) {
            const unlocked now;
            release(&gone);
        }
    }
    T *at = nullptr;

  protected:
    using life::life;
    ~holder() = default;
};
class use
{
  public:
    explicit use(life &used) : of(used)
    {
        of.enter();
    }
    use(const use &) = delete;
    ~use()
    {
        of.leave();
    }

  private:
    life &of;
};
template <typename F> void life::ask(F call)
{
    use here(*this);
    py::ask(call);
}
/* A reference to an object, and a use of it. */
template <typename T> class kept
{
  public:
    kept() = default;
    explicit kept(T &used) : at(&used)
    {
        used.enter();
        Py_INCREF(object(at));
    }
    /* Adds a use while another one exists, even if the object was closed since. */
    static kept beside(T &used)
    {
        kept made;
        made.at = &used;
        used.hold();
        Py_INCREF(object(made.at));
        return made;
    }
    kept(kept &&other) noexcept : at(std::exchange(other.at, nullptr))
    {
    }
    kept &operator=(kept other) noexcept
    {
        std::swap(at, other.at);
        return *this;
    }
    ~kept()
    {
        drop();
    }
    void drop()
    {
        if (T *gone = std::exchange(at, nullptr)) {
            gone->leave();
            Py_DECREF(object(gone));
        }
    }
    T *operator->() const
    {
        return at;
    }
    T &operator*() const
    {
        return *at;
    }
    explicit operator bool() const
    {
        return at != nullptr;
    }

  private:
    T *at = nullptr;
};
/* Methods and an attribute that all types share. */
template <typename T> void close_it(T &self)
{
    self.close();
}
template <typename T> ref enter_it(T &self)
{
    use here(self);
    return share(object(&self));
}
template <typename T> void leave_it(T &self, PyObject *, PyObject *, PyObject *)
{
    self.close();
}
template <typename T> bool is_closed(T &self)
{
    return self.closed();
}
/* Methods that are one call of libsluice: A are its parameters, R is its result. */
template <auto call, typename S, typename... A> struct bound {
    static void it(S &self, A... given)
    {
        self.ask([&](sl_error *why) { return call(self.at, given..., why); });
    }
};
template <auto call, typename R, typename S, typename... A> struct asked {
    static R it(S &self, A... given)
    {
        R out = {};
        self.ask([&](sl_error *why) { return call(self.at, given..., &out, why); });
        return out;
    }
};
template <auto call, typename S> auto known(S &self)
{
    use here(self);
    return call(self.at);
}
#define WITH(enter, leave)                \
    METHOD("__enter__", "()", enter, ""), \
        METHOD("__exit__", "(type, value, traceback, /)", leave, "")
constexpr PyMethodDef last_method = {nullptr, nullptr, 0, nullptr};
constexpr PyGetSetDef last_attribute = {nullptr, nullptr, nullptr, nullptr, nullptr};

} // namespace py

#endif
