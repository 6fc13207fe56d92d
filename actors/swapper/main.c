/* actors/swapper/main.c - the program sluice-swapper. */
#include "actors/swapper/swapper.h"
#include "ipc/msg/sl_process.h"

int main(int argc, char **argv)
{
    return sl_process_main(&sl_swapper_actor, argc, argv);
}
