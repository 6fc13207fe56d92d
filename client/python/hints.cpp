/* client/python/hints.cpp - hints about sessions: from a dict, and calls between requests. */
#include "client/python/internal.hpp"

namespace py
{

/* Returns the position of a word in the list, from 1; 0 for None. */
template <size_t count>
static uint32_t word_take(PyObject *word, const char *name, const char *const (&list)[count])
{
    if (word == Py_None) {
        return 0;
    }
    const std::string_view given = PyUnicode_Check(word) ? text(word) : "";
    for (uint32_t i = 0; i < count; i++) {
        if (given == list[i]) {
            return i + 1;
        }
    }
    fail(PyExc_ValueError, "hints: invalid %s: %R", name, word);
}

/* Borrowed from value. */
static const char *name_take(const char *of, PyObject *value)
{
    const std::string_view given = text(value);
    if (given.empty() || given.find('\0') != std::string_view::npos) {
        fail(PyExc_ValueError, "%s: invalid session_id: %R", of, value);
    }
    return given.data();
}

static void hint_take(PyObject *name, PyObject *value, sl_hints &to)
{
    static const char *const sessions[] = {"ends", "continues"};
    static const char *const priorities[] = {"low", "normal", "high"};
    const std::string_view word = PyUnicode_Check(name) ? text(name) : "";
    if (word == "session") {
        to.session = static_cast<sl_session>(word_take(value, "session", sessions));
    } else if (word == "priority") {
        to.priority = static_cast<sl_priority>(word_take(value, "priority", priorities));
    } else if (word == "keep") {
        to.keep_ns = seconds(value);
    } else if (word == "pause") {
        to.pause_ns = seconds(value);
    } else if (word == "session_id") {
        to.session_id = value == Py_None ? nullptr : name_take("hints", value);
    } else {
        fail(PyExc_ValueError,
             "hints: unknown name %R; known are session, session_id, pause, priority and keep",
             name);
    }
}

hints::hints(PyObject *given) : sl_hints()
{
    PyObject *name = nullptr, *value = nullptr;
    Py_ssize_t at = 0;
    if (given == nullptr || given == Py_None) {
        return;
    }
    if (!PyDict_Check(given)) {
        fail(PyExc_TypeError, "hints: a dict is needed");
    }
    while (PyDict_Next(given, &at, &name, &value) != 0) {
        hint_take(name, value, *this);
    }
}

static bool session_pause(client &self, PyObject *session, PyObject *pause, timeout wait)
{
    const char *name = name_take("session_pause", session);
    const uint64_t pause_ns = pause == Py_None ? SL_PAUSE_UNKNOWN : seconds(pause).ns;
    bool known = true;
    self.ask([&](sl_error *why) {
        const sl_err err = sl_session_pause(self.at, name, pause_ns, wait, why);
        known = err == SL_OK;
        return err == SL_ERR_NOT_FOUND ? SL_OK : err;
    });
    return known;
}

static void hint(client &self, const keys &names, const hints &said, bool asked, uint32_t lane,
                 timeout wait)
{
    const sl_hinted of = {names.at.data(), names.count, asked, lane};
    self.ask([&](sl_error *why) { return sl_hint_batch(self.at, &said, &of, wait, why); });
}

void hint_methods(methods &client)
{
    add(client,
        METHOD("session_pause", "(session_id, pause, *, timeout=None)", session_pause,
               "Reports during a pause that the session continues in `pause` seconds; 0: it is "
               "about to continue; None: not known. Returns False if no recent op on this node "
               "named the session. UnsupportedError: this node does not track sessions."),
        METHOD("hint", "(keys, hints, *, asked=False, lane=0, timeout=None)", hint,
               "Gives hints for values, in the order of their chain, and for the session that "
               "got (asked) or put them. lane: rank with values of its own, 0 to 63."));
}

} // namespace py
