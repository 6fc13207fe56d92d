/* client/python/density.c - the module sluice._density: the code that a node evicts by (runtime/density), for
 * sluice.advise. */
#include "runtime/density/density.h"
#include "client/python/glue/glue.h"
#include "runtime/sl_array.h"
#include "runtime/sl_base.h"

#include <stdlib.h>
#include <string.h>

#define NUMBERS_MAX (1u << 30) /* of blocks */

struct density {
    PyObject_HEAD struct sl_density *density;
    uint32_t *here; /* unit by block; 0: it is not in memory */
    uint32_t room;
};

static struct density *of(PyObject *self)
{
    return (struct density *)self;
}

/* By which density knows a block: the mixing of SplitMix64. */
static uint64_t hash_of(uint32_t block)
{
    uint64_t hash = block + UINT64_C(1);
    hash = (hash ^ hash >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    hash = (hash ^ hash >> 27) * UINT64_C(0x94d049bb133111eb);
    return hash ^ hash >> 31;
}

/* False with an exception. */
static bool block_take(struct density *self, PyObject *number, uint32_t *out)
{
    uint64_t block = 0;
    if (number == NULL || !sl_glue_u64(number, &block)) {
        return false;
    }
    if (block >= NUMBERS_MAX) {
        PyErr_Format(PyExc_ValueError, "block %llu is not below 2^30", (unsigned long long)block);
        return false;
    }
    uint32_t before = self->room;
    if (block >= before) {
        if (!SL_ARRAY_ROOM(self->here, self->room, block + 1)) {
            (void)PyErr_NoMemory();
            return false;
        }
        memset(&self->here[before], 0, (self->room - before) * sizeof(*self->here));
    }
    *out = (uint32_t)block;
    return true;
}

static PyObject *density_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static const struct sl_density_options plan = {.ghosts_min = SL_DENSITY_GHOSTS_MIN,
                                                   .ghosts_max = SL_DENSITY_GHOSTS_MAX};
    (void)keywords;
    PyObject *self = PyArg_ParseTuple(arguments, "") ? sl_glue_new(type) : NULL;
    if (self != NULL && sl_density_create(&plan, &of(self)->density) != SL_OK) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return self;
}

static void density_dealloc(PyObject *self)
{
    sl_density_destroy(&of(self)->density);
    free(of(self)->here);
    sl_glue_free(self);
}

static int density_contains(PyObject *self, PyObject *number)
{
    uint32_t block;
    return block_take(of(self), number, &block) ? of(self)->here[block] != 0 : -1;
}

/* A request: blocks of a chain. Those that are here are used from the end on, as engines note them. */
static bool request_take(struct density *self, PyObject *list, const char *to,
                         struct reg_wanted *wanted, uint64_t before)
{
    uint32_t count = (uint32_t)PyList_Size(list), block;
    for (uint32_t i = count; i-- > 0;) {
        if (!block_take(self, PyList_GetItem(list, i), &block)) {
            return false;
        }
        uint32_t *unit = &self->here[block];
        if (to[i] != 0 && *unit != 0) {
            sl_density_use(self->density, *unit, wanted->hint);
            sl_density_say(self->density, *unit, wanted->hint, wanted->priority);
        }
    }
    wanted->parent_hash = before;
    for (uint32_t i = 0; i < count; i++) {
        (void)block_take(self, PyList_GetItem(list, i), &block); /* as above */
        wanted->cut = i + 1 == count;
        if (to[i] != 0 && self->here[block] == 0) {
            self->here[block] = sl_density_enter(self->density, hash_of(block), block, wanted);
            if (self->here[block] == 0) {
                (void)PyErr_NoMemory();
                return false;
            }
        }
        wanted->parent_hash = hash_of(block);
    }
    return true;
}

static PyObject *density_use(PyObject *self, PyObject *arguments)
{
    PyObject *list, *before;
    const char *to;
    Py_ssize_t to_count;
    unsigned stored, hint, now_s;
    if (!PyArg_ParseTuple(arguments, "O!y#OIII", &PyList_Type, &list, &to, &to_count, &before,
                          &stored, &hint, &now_s)) {
        return NULL;
    }
    uint32_t block = 0;
    if (PyList_Size(list) != to_count || hint >= REG_HINT_COUNT) {
        PyErr_SetString(PyExc_ValueError, "a byte a block, and a hint below 3, are needed");
        return NULL;
    }
    if (before != Py_None && !block_take(of(self), before, &block)) {
        return NULL;
    }
    struct reg_wanted wanted = {.stored_count = SL_MAX(stored, 1u),
                                .hint = (enum reg_hint)hint,
                                .priority = REG_PRIORITY_NORMAL};
    sl_density_now(of(self)->density, now_s, 0);
    if (!request_take(of(self), list, to, &wanted, before != Py_None ? hash_of(block) : 0)) {
        return NULL;
    }
    return Py_NewRef(Py_None);
}

/* A walk goes on where the last victim left; a use begins the next one. */
static PyObject *density_evict(PyObject *self, PyObject *unused)
{
    (void)unused;
    struct sl_density *density = of(self)->density;
    uint32_t unit = sl_density_next(density, false);
    unit = unit != 0 ? unit : sl_density_first(density);
    if (unit == 0) {
        PyErr_SetString(PyExc_IndexError, "no block is in memory");
        return NULL;
    }
    uint32_t block = sl_density_user(density, unit);
    sl_density_leave(density, unit);
    of(self)->here[block] = 0;
    return PyLong_FromUnsignedLong(block);
}

static PyObject *density_chance(PyObject *self, PyObject *arguments)
{
    PyObject *number;
    unsigned long long references;
    uint32_t block;
    if (!PyArg_ParseTuple(arguments, "OK", &number, &references) ||
        !block_take(of(self), number, &block)) {
        return NULL;
    }
    uint32_t unit = of(self)->here[block];
    return PyFloat_FromDouble(unit != 0 ? sl_density_chance(of(self)->density, unit, references)
                                        : 1.0);
}

static PyMethodDef density_methods[] = {
    {"use", density_use, METH_VARARGS,
     "use(blocks, to, before, stored, hint, now_s)\n--\n\nA request: a list of blocks of a chain, "
     "of which those with a byte that is not 0 in `to` are in memory, or come to it; the block "
     "before the first, or None; how many of them are stored."},
    {"evict", density_evict, METH_NOARGS, "evict()\n--\n\nThe block that leaves memory."},
    {"chance", density_chance, METH_VARARGS,
     "chance(block, references)\n--\n\nHow likely it is wanted within so many references."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot density_slots[] = {
    {Py_tp_doc, (void *)"Density()\n--\n\nWhich blocks are in memory, by density."},
    {Py_tp_new, (void *)density_new},
    {Py_tp_dealloc, (void *)density_dealloc},
    {Py_tp_methods, density_methods},
    {Py_sq_contains, (void *)density_contains},
    {0, NULL},
};
static PyType_Spec density_spec = {.name = "sluice._density.Density",
                                   .basicsize = sizeof(struct density),
                                   .flags = Py_TPFLAGS_DEFAULT,
                                   .slots = density_slots};

static int module_exec(PyObject *module)
{
    return sl_glue_attribute_add(module, "Density", PyType_FromSpec(&density_spec));
}
static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void *)module_exec},
    {0, NULL},
};
static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "sluice._density",
    .m_doc = "The order in which blocks leave a node's memory; for sluice.advise.",
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__density(void); /* found by name */
PyMODINIT_FUNC PyInit__density(void)
{
    return PyModuleDef_Init(&module_definition);
}
