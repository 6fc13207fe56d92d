/* client/python/density.cpp - the module sluice._density: the code that a node evicts by
 * (runtime/density), for sluice.advise. */
#include "client/python/glue/glue.hpp"
extern "C" {
#include "runtime/density/density.h"
}

#include <algorithm>

namespace py
{

constexpr uint64_t numbers_max = UINT64_C(1) << 30; /* of blocks */

struct density {
    sl_density *at = nullptr;
    std::vector<uint32_t> here = {}; /* unit by block; 0: it is not in memory */
    ~density()
    {
        sl_density_destroy(&at);
    }
};

/* By which density knows a block: the mixing of SplitMix64. */
static uint64_t hash_of(uint32_t block)
{
    uint64_t hash = block + UINT64_C(1);
    hash = (hash ^ hash >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    hash = (hash ^ hash >> 27) * UINT64_C(0x94d049bb133111eb);
    return hash ^ hash >> 31;
}

static uint32_t block_take(density &self, PyObject *number)
{
    const uint64_t block = u64(number);
    if (block >= numbers_max) {
        fail(PyExc_ValueError, "block %llu is not below 2^30",
             static_cast<unsigned long long>(block));
    }
    if (block >= self.here.size()) {
        self.here.resize(std::max<size_t>(block + 1, self.here.size() * 2));
    }
    return static_cast<uint32_t>(block);
}

static ref density_new(PyTypeObject &type)
{
    const sl_density_options plan = {.ghosts_min = SL_DENSITY_GHOSTS_MIN,
                                     .ghosts_max = SL_DENSITY_GHOSTS_MAX};
    ref made = make<density>(&type);
    if (sl_density_create(&plan, &of<density>(made.get()).at) != SL_OK) {
        throw std::bad_alloc();
    }
    return made;
}

static int density_contains(PyObject *object, PyObject *number)
{
    return guarded([&] {
        auto &self = of<density>(object);
        return self.here[block_take(self, number)] != 0 ? 1 : 0;
    });
}

/* A request: blocks of a chain. Those that are here are used from the end on, as engines note them. */
static void density_use(density &self, PyObject *list, PyObject *to_bytes, PyObject *before,
                        uint32_t stored, uint32_t hint, uint32_t now_s)
{
    if (!PyList_Check(list) || !PyBytes_Check(to_bytes) ||
        PyList_Size(list) != PyBytes_Size(to_bytes) || hint >= REG_HINT_COUNT) {
        fail(PyExc_ValueError, "a list of blocks, a byte a block, and a hint below 3 are needed");
    }
    std::vector<uint32_t> blocks;
    for (Py_ssize_t i = 0; i < PyList_Size(list); i++) {
        blocks.push_back(block_take(self, PyList_GetItem(list, i)));
    }
    const char *to = PyBytes_AsString(to_bytes);
    reg_wanted wanted = {
        .parent_hash = before == Py_None ? 0 : hash_of(block_take(self, before)),
        .stored_count = std::max(stored, 1u),
        .cut = false,
        .hint = static_cast<reg_hint>(hint),
        .priority = REG_PRIORITY_NORMAL,
    };
    sl_density_now(self.at, now_s, 0);
    for (size_t i = blocks.size(); i-- > 0;) {
        const uint32_t unit = self.here[blocks[i]];
        if (to[i] != 0 && unit != 0) {
            sl_density_use(self.at, unit, wanted.hint);
            sl_density_say(self.at, unit, wanted.hint, wanted.priority);
        }
    }
    for (size_t i = 0; i < blocks.size(); i++) {
        uint32_t &unit = self.here[blocks[i]];
        wanted.cut = i + 1 == blocks.size();
        if (to[i] != 0 && unit == 0) {
            unit = sl_density_enter(self.at, hash_of(blocks[i]), blocks[i], &wanted);
            if (unit == 0) {
                throw std::bad_alloc();
            }
        }
        wanted.parent_hash = hash_of(blocks[i]);
    }
}

/* A walk goes on where the last victim left; a use begins the next one. */
static uint32_t density_evict(density &self)
{
    uint32_t unit = sl_density_next(self.at, false);
    unit = unit != 0 ? unit : sl_density_first(self.at);
    if (unit == 0) {
        fail(PyExc_IndexError, "no block is in memory");
    }
    const uint32_t block = sl_density_user(self.at, unit);
    sl_density_leave(self.at, unit);
    self.here[block] = 0;
    return block;
}

static double density_chance(density &self, PyObject *number, uint64_t references)
{
    const uint32_t unit = self.here[block_take(self, number)];
    return unit != 0 ? sl_density_chance(self.at, unit, references) : 1.0;
}

static PyObject *module_make()
{
    static PyModuleDef definition = {
        PyModuleDef_HEAD_INIT,
        "sluice._density",
        "The order in which blocks leave a node's memory; for sluice.advise.",
        -1,
        nullptr,
        nullptr,
        nullptr,
        nullptr,
        nullptr};
    static PyMethodDef methods[] = {
        METHOD("use", "(blocks, to, before, stored, hint, now_s, /)", density_use,
               "A request: a list of blocks of a chain, of which those with a byte that is not 0 "
               "in `to` are in memory, or come to it; the block before the first, or None; how "
               "many of them are stored."),
        METHOD("evict", "()", density_evict, "The block that leaves memory."),
        METHOD("chance", "(block, references, /)", density_chance,
               "How likely it is wanted within so many references."),
        {nullptr, nullptr, 0, nullptr},
    };
    static PyGetSetDef attributes[] = {{nullptr, nullptr, nullptr, nullptr, nullptr}};
    static const char doc[] = "Density()\n--\n\nWhich blocks are in memory, by density.";
    ref module = own(PyModule_Create(&definition));
    (void)add_type<density>(
        module.get(), "sluice._density.Density", doc, methods, attributes,
        {maker<density_new>(doc), {Py_sq_contains, reinterpret_cast<void *>(density_contains)}});
    return module.release();
}

} // namespace py

PyMODINIT_FUNC PyInit__density(void); /* found by name */
PyMODINIT_FUNC PyInit__density(void)
{
    return py::guarded([] { return py::module_make(); });
}
