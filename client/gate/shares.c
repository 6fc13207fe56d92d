/* client/gate/shares.c - see shares.h. */
#include "client/gate/shares.h"

#include <stddef.h>
#include <sys/mman.h>

struct share *shares_make(void)
{
    void *at = mmap(NULL, SHARES_MAX * sizeof(struct share), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

void share_empty(struct share *share, uint32_t uid)
{
    for (uint32_t kind = 0; kind < SHARE_KINDS; kind++) {
        atomic_store(&share->held[kind], 0);
    }
    atomic_store(&share->uid, uid);
}

bool shares_take(const struct shares *self, enum share_kind kind, uint64_t amount, uint64_t most,
                 bool first)
{
    uint32_t uid = atomic_load(&self->own->uid);
    uint64_t sum = 0;
    atomic_fetch_add(&self->own->held[kind],
                     amount); /* before the others are read: one of two sees both */
    for (uint32_t i = 0; i < SHARES_MAX; i++) {
        uint64_t held =
            atomic_load(&self->all[i].uid) == uid ? atomic_load(&self->all[i].held[kind]) : 0;
        sum = sum > UINT64_MAX - held ? UINT64_MAX : sum + held;
    }
    if (sum <= most || (first && sum == amount)) {
        return true;
    }
    shares_let(self, kind, amount);
    return false;
}

void shares_let(const struct shares *self, enum share_kind kind, uint64_t amount)
{
    atomic_fetch_sub(&self->own->held[kind], amount);
}
