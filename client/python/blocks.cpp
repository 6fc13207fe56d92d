/* client/python/blocks.cpp - methods of Engine that look blocks up by the engine's own keys. */
#include "client/python/internal.hpp"

namespace py
{

/* Returns the length of the prefix in blocks. there: receives a bitmap; NULL: not wanted. */
static uint32_t look_do(engine &self, const hashes &given, uint32_t window, seconds hold,
                        unsigned char *there)
{
    const sl_prefix_query look = {given.at, given.count > 0 ? given.hash_bytes : 1, given.count,
                                  window, hold};
    sl_prefix_result looked = {};
    self.ask([&](sl_error *why) { return sl_prefix_match(self.at, &look, &looked, there, why); });
    return looked.prefix_count;
}

static uint32_t look_blocks(engine &self, PyObject *object, std::optional<uint32_t> hash_bytes,
                            uint32_t window, seconds hold)
{
    hashes given;
    given.take(object, hash_bytes);
    return look_do(self, given, window, hold, nullptr);
}

static ref look_there(engine &self, PyObject *object, std::optional<uint32_t> hash_bytes,
                      uint32_t window, seconds hold)
{
    hashes given;
    given.take(object, hash_bytes);
    std::vector<unsigned char> there((size_t{given.count} + 7) / 8 + 1);
    const uint32_t prefix = look_do(self, given, window, hold, there.data());
    return tuple(prefix, bytes(there.data(), there.size() - 1));
}

void block_methods(methods &engine)
{
    add(engine,
        METHOD("look", "(hashes, *, hash_bytes=0, window=0, hold=None)", look_blocks,
               "Returns how many blocks, from the first one on, are in memory or on disk, by "
               "the engine's own keys (as in store). Sends no message and does not wait. "
               "window: a prefix needs only its last `window` blocks. hold: seconds for which "
               "the needed blocks are not evicted."),
        METHOD(
            "look_there", "(hashes, *, hash_bytes=0, window=0, hold=None)", look_there,
            "Returns the number of look, and a bitmap of all blocks: bit i & 7 of byte i >> 3."));
}

} // namespace py
