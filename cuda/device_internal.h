/* cuda/device_internal.h - functions that open the back ends; private to cuda/. */
#ifndef SL_DEVICE_INTERNAL_H
#define SL_DEVICE_INTERNAL_H

#include "cuda/kernel_images.h"
#include "cuda/sl_device.h"

sl_err sl_device_host_open(const struct sl_device_options *options, struct sl_device **out,
                           struct sl_error *why);
sl_err sl_device_cuda_open(const struct sl_device_options *options, struct sl_device **out,
                           struct sl_error *why);

#endif
