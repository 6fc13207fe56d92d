/* actors/registrar/memory/accesses.h - what readers noted in their access rings. */
#ifndef SL_REGISTRAR_MEMORY_ACCESSES_H
#define SL_REGISTRAR_MEMORY_ACCESSES_H

#include "actors/registrar/base/core.h"

uint32_t reg_peers_drain(struct registrar *self); /* access rings -> LRU */

extern const struct reg_part reg_accesses_part;

#endif
