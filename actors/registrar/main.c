/* actors/registrar/main.c - the program sluice-registrar. */
#include "actors/registrar/registrar.h"
#include "ipc/msg/sl_process.h"

int main(int argc, char **argv)
{
    return sl_process_main(&sl_registrar_actor, argc, argv);
}
