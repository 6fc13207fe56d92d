/* client/mooncake/python/metadata.c - the module mooncake._metadata: the daemons' metadata server,
 * run by threads of this process. http_metadata_server.py is its face. */
#include "client/mooncake/daemons/metadata.h"
#include "client/mooncake/daemons/join.h"
#include "client/python/glue/glue.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define SERVER "mooncake._metadata.server"

struct held {
    struct mc_metadata *server;
    char *token; /* NULL: none */
    pid_t pid;
};

/* A child of fork has the object and none of the threads: its parent ends the server. */
static void server_end(PyObject *capsule)
{
    struct held *held = PyCapsule_GetPointer(capsule, SERVER);
    if (held->pid == getpid()) {
        Py_BEGIN_ALLOW_THREADS;
        mc_metadata_stop(&held->server);
        Py_END_ALLOW_THREADS;
    }
    free(held->token);
    free(held);
}

static sl_err held_start(struct held *held, int fd, uint64_t bytes_max, bool open,
                         struct sl_error *why)
{
    sigset_t all, before;
    sl_err err = open ? SL_OK : mc_secret_get(MC_ADMIN_TOKEN, &held->token, why);
    if (err != SL_OK) {
        (void)close(fd);
        return err;
    }
    const struct mc_http_guard guard = {.token = held->token, .open_without_token = true};
    held->pid = getpid();
    (void)sigfillset(&all); /* signals are for the interpreter's threads */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    err = mc_metadata_start(fd, bytes_max, &guard, &held->server, why);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return err;
}

static PyObject *server_start(PyObject *module, PyObject *args)
{
    int fd = -1, open = 0;
    unsigned long long bytes_max = 0;
    struct sl_error why = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "iKp", &fd, &bytes_max, &open)) {
        return NULL;
    }
    struct held *held = calloc(1, sizeof *held);
    if (held == NULL) {
        (void)close(fd);
        return PyErr_NoMemory();
    }
    PyObject *capsule = NULL;
    if (held_start(held, fd, bytes_max, open != 0, &why) != SL_OK) {
        PyErr_SetString(PyExc_OSError, why.text);
    } else {
        capsule = PyCapsule_New(held, SERVER, server_end);
    }
    if (capsule == NULL) {
        mc_metadata_stop(&held->server);
        free(held->token);
        free(held);
    }
    return capsule;
}

static PyObject *server_tend(PyObject *module, PyObject *args)
{
    PyObject *capsule = NULL;
    unsigned long long now_ns = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "OK", &capsule, &now_ns)) {
        return NULL;
    }
    struct held *held = PyCapsule_GetPointer(capsule, SERVER);
    if (held == NULL) {
        return NULL;
    }
    mc_metadata_tend(held->server, now_ns);
    Py_RETURN_NONE;
}

static int module_exec(PyObject *module)
{
    return PyModule_AddIntConstant(module, "BYTES_MAX", (long)MC_METADATA_BYTES_MAX);
}

static PyMethodDef module_methods[] = {
    {"start", server_start, METH_VARARGS,
     "start(fd, bytes_max, open): serves on a listening descriptor (taken) until the object that it "
     "gives is let go. Writes need the token of MOONCAKE_ADMIN_TOKEN, if there is one, or nothing "
     "when open. Raises OSError."},
    {"tend", server_tend, METH_VARARGS,
     "tend(server, monotonic_ns): cuts connections whose request takes too long."},
    {NULL, NULL, 0, NULL},
};
static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void *)module_exec},
    {0, NULL},
};
static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "mooncake._metadata",
    .m_methods = module_methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__metadata(void); /* found by name */
PyMODINIT_FUNC PyInit__metadata(void)
{
    return PyModuleDef_Init(&module_definition);
}
