//! Room `engine`: realize, caches, replay. The one room that sees schedule, codegen and device.
