/* client/mooncake/python/metadata.c - the module mooncake._metadata: the daemons' metadata server,
 * run by threads of this process. http_metadata_server.py is its face. */
#include "client/mooncake/daemons/metadata.h"
#include "client/python/glue/glue.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#define SERVER "mooncake._metadata.server"

/* A child of fork has the object and none of the threads: its parent ends the server. */
static void server_end(PyObject *capsule)
{
    struct mc_metadata *server = PyCapsule_GetPointer(capsule, SERVER);
    if (PyCapsule_GetContext(capsule) == (void *)(intptr_t)getpid()) {
        Py_BEGIN_ALLOW_THREADS;
        mc_metadata_stop(&server);
        Py_END_ALLOW_THREADS;
    }
}

static PyObject *server_start(PyObject *module, PyObject *args)
{
    int fd = -1;
    unsigned long long bytes_max = 0;
    struct mc_metadata *server = NULL;
    struct sl_error why = {0};
    const struct mc_http_guard guard = {.open_without_token = true};
    sigset_t all, before;
    (void)module;
    if (!PyArg_ParseTuple(args, "iK", &fd, &bytes_max)) {
        return NULL;
    }
    (void)sigfillset(&all); /* signals are for the interpreter's threads */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    sl_err err = mc_metadata_start(fd, bytes_max, &guard, &server, &why);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (err != SL_OK) {
        PyErr_SetString(PyExc_OSError, why.text);
        return NULL;
    }
    PyObject *capsule = PyCapsule_New(server, SERVER, server_end);
    if (capsule == NULL) {
        mc_metadata_stop(&server);
    } else if (PyCapsule_SetContext(capsule, (void *)(intptr_t)getpid()) != 0) {
        Py_CLEAR(capsule);
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
    struct mc_metadata *server = PyCapsule_GetPointer(capsule, SERVER);
    if (server == NULL) {
        return NULL;
    }
    mc_metadata_tend(server, now_ns);
    Py_RETURN_NONE;
}

static int module_exec(PyObject *module)
{
    return PyModule_AddIntConstant(module, "BYTES_MAX", (long)MC_METADATA_BYTES_MAX);
}

static PyMethodDef module_methods[] = {
    {"start", server_start, METH_VARARGS,
     "start(fd, bytes_max): serves on a listening descriptor (taken) until the object that it gives "
     "is let go. Raises OSError."},
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
