/* tests/bench/policy/memory_lru.c - evicts the least recently used block first. */
#include "tests/bench/policy/internal.h"

#include <stdlib.h>

static void lru_out(struct model_memory *memory, uint32_t id)
{
    memory->newer[memory->older[id]] = memory->newer[id];
    memory->older[memory->newer[id]] = memory->older[id];
}

static sl_err lru_begin(struct model_memory *memory)
{
    uint32_t end = memory->id_limit;
    memory->older = calloc((size_t)end + 1, sizeof(*memory->older));
    memory->newer = calloc((size_t)end + 1, sizeof(*memory->newer));
    if (memory->older == NULL || memory->newer == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    memory->older[end] = end;
    memory->newer[end] = end;
    return SL_OK;
}

static void lru_end(struct model_memory *memory)
{
    free(memory->older);
    free(memory->newer);
}

/* The end of a chain is evicted first. */
static sl_err lru_use(struct model_memory *memory, const struct model_use *use)
{
    uint32_t end = memory->id_limit;
    for (uint32_t k = use->count; k-- > 0;) {
        uint32_t id = use->ids[k];
        if (use->to[k] == 0) {
            continue;
        }
        if (memory->here[id] != 0) {
            lru_out(memory, id);
        }
        memory->here[id] = 1;
        memory->older[id] = memory->older[end];
        memory->newer[id] = end;
        memory->newer[memory->older[id]] = id;
        memory->older[end] = id;
        memory->references++;
    }
    return SL_OK;
}

static uint32_t lru_victim(struct model_memory *memory)
{
    uint32_t victim = memory->newer[memory->id_limit];
    if (victim == memory->id_limit) {
        return MODEL_NO_BLOCK;
    }
    lru_out(memory, victim);
    memory->here[victim] = 0;
    return victim;
}

const struct model_memory_ops model_memory_lru = {
    .begin = lru_begin, .end = lru_end, .use = lru_use, .victim = lru_victim};
