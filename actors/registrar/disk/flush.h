/* actors/registrar/disk/flush.h - FLUSH. */
#ifndef SL_REGISTRAR_DISK_FLUSH_H
#define SL_REGISTRAR_DISK_FLUSH_H

#include "actors/registrar/base/core.h"

extern const struct reg_part reg_flushes_part;

#endif
