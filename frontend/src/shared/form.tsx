import { createFormHook, createFormHookContexts } from '@tanstack/react-form'
import type { ComponentProps, SyntheticEvent } from 'react'

import { Checkbox, SelectField, TextAreaField, TextField } from '~/ui/Field'

const { fieldContext, formContext, useFieldContext } = createFormHookContexts()

type Own = 'value' | 'checked' | 'error' | 'onChange' | 'onBlur'

/** What is wrong with a field: the first thing of what its form's validator says. */
export function errorOf(field: { state: { meta: { errors: readonly unknown[] } } }): string | undefined {
  return field.state.meta.errors.find((error): error is string => typeof error === 'string')
}

function Text(props: Omit<ComponentProps<typeof TextField>, Own>) {
  const field = useFieldContext<string>()
  return (
    <TextField
      {...props}
      value={field.state.value}
      error={errorOf(field)}
      onBlur={field.handleBlur}
      onChange={(event) => {
        field.handleChange(event.target.value)
      }}
    />
  )
}

/** `refused`: what the API said of the text that was sent; what is wrong with the text that is there goes before it. */
function TextArea({
  refused,
  ...props
}: Omit<ComponentProps<typeof TextAreaField>, Own> & { refused?: string | null }) {
  const field = useFieldContext<string>()
  return (
    <TextAreaField
      {...props}
      value={field.state.value}
      error={errorOf(field) ?? refused}
      onBlur={field.handleBlur}
      onChange={(event) => {
        field.handleChange(event.target.value)
      }}
    />
  )
}

function Select(props: Omit<ComponentProps<typeof SelectField>, Own>) {
  const field = useFieldContext<string>()
  return (
    <SelectField
      {...props}
      value={field.state.value}
      error={errorOf(field)}
      onBlur={field.handleBlur}
      onChange={(event) => {
        field.handleChange(event.target.value)
      }}
    />
  )
}

function Check({ label }: Pick<ComponentProps<typeof Checkbox>, 'label'>) {
  const { state, handleChange } = useFieldContext<boolean>()
  return <Checkbox label={label} checked={state.value} onChange={handleChange} />
}

/**
 * Forms of the console. A form's validator, `validators.onChange`, looks at all its values whenever one changes, and says
 * what is wrong with which field by `wrong`; the fields show it, and nothing is submitted before they are right.
 */
export const { useAppForm, withForm } = createFormHook({
  fieldContext,
  formContext,
  fieldComponents: { Text, TextArea, Select, Check },
  formComponents: {},
})

/** A validator's answer: what is wrong with which fields. */
export function wrong<Name extends string>(errors: Partial<Record<Name, string | null | undefined>>) {
  const fields = Object.fromEntries(Object.entries(errors).filter(([, error]) => error)) as Partial<
    Record<Name, string>
  >
  return Object.keys(fields).length > 0 ? { fields } : undefined
}

/** Submits a form in place of the browser. */
export const submits = (form: { handleSubmit: () => Promise<void> }) => (event: SyntheticEvent) => {
  event.preventDefault()
  void form.handleSubmit()
}
